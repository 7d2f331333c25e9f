"""The report of a run: one page, as HTML and as Markdown, made from the run's folder alone."""

from regard.training.report.scores import evaluate_command
from regard.training.report.tasks import main_scores, told
from regard.training.report.write import write_report

__all__ = ["evaluate_command", "main_scores", "told", "write_report"]
