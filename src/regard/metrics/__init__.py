"""Scores of model outputs, used by training and by the tasks: plain values in, plain numbers out.

Rates lie between 0 and 1, BLEU and chrF between 0 and 100.
"""
