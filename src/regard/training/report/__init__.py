"""The report of a run (report.html, report.md, curves.png), made from the files of the run folder."""

from regard.training.report.run_data import main_scores, score_line
from regard.training.report.sections import draw_curves, evaluate_command, finish_report, write_report

__all__ = ["draw_curves", "evaluate_command", "finish_report", "main_scores", "score_line", "write_report"]
