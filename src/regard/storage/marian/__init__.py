"""Models of Marian: .npz, and the binary form of its students (Firefox, Bergamot)."""

from regard.storage.marian.convert import convert_marian as convert_marian
from regard.storage.marian.file import find_model as find_model
