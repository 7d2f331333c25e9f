"""Attention, positions, layers, the Transformer, recurrent models, and the families built from them.

Import from the modules: `regard.models.attention` needs no family, and no configuration.
"""

from regard.compat import old_names

__getattr__ = old_names(__name__)
