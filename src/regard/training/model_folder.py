"""The end of a run: choose the best checkpoint, write the model folder, score it."""

from __future__ import annotations

from pathlib import Path

from regard import storage
from regard.config import Config
from regard.config.schema import TaskName
from regard.data.corpora import short_names
from regard.device import release_memory
from regard.errors import RegardError
from regard.models.families import parameters
from regard.training.checkpoints import latest_checkpoint
from regard.training.distributed import SingleProcess
from regard.training.evaluation import FILES
from regard.training.flops import measured_peak
from regard.training.progress import Metrics, Record
from regard.training.trainer import Trainer


def write_model_folder(trainer: Trainer, metrics: Metrics) -> list[Record]:
    """Choose the model, write it to the folder's root, score it, write card, curves and report."""
    from regard.storage.card import write_card
    from regard.training.report import evaluate_command, finish_report

    config, folder, data = trainer.config, trainer.folder, trainer.data
    chosen = choose_best(trainer, metrics)
    storage.remove_checksums(folder)
    if config.init.lora is not None:
        write_lora(trainer, config)
    storage.write_weights(folder, config.model, storage.unique_weights(trainer.model), config.input)
    storage.write_checksums(folder)
    records = []
    for kind, evaluation in (("final-valid", data.valid), ("test", data.test)):
        if evaluation is not None:
            release_memory()
            scores = evaluation.final(trainer.model.eval(), folder / FILES[kind])
            record = {"kind": kind, "step": trainer.progress.step, **scores, "sentences": len(evaluation)}
            metrics.add(record)
            records.append(record)
    robust = add_robustness(trainer, metrics)
    facts = {
        "data": short_names(config.data.train, config.task),
        "steps": trainer.progress.step,
        "chosen": chosen,
        "command": evaluate_command(config, folder.resolve().name),
    }
    scores = card_scores(config.task.name, records)
    write_card(folder, config, parameters(trainer.model), facts, scores, data.record, robust)
    metrics.add(run_record(trainer, chosen))
    finish_report(folder, metrics.listener.log)
    return records


def write_lora(trainer: Trainer, config: Config) -> None:
    """The adapters as a folder of `peft`; then they become part of the weights."""
    from regard.models.lora import merge_adapters
    from regard.storage.adapters import ADAPTER_FOLDER, write_adapter

    weights = storage.unique_weights(trainer.model)
    write_adapter(trainer.folder / ADAPTER_FOLDER, config, weights, trainer.data.labels)
    merge_adapters(trainer.model)


def add_robustness(trainer: Trainer, metrics: Metrics) -> tuple[list[str], list[list[str]]]:
    """Score the model on modified texts if it was trained with modifiers of text; the table for the card."""
    config, data = trainer.config, trainer.data
    evaluation = data.test or data.valid
    if not config.data.modifiers or config.task.input != "text" or evaluation is None:
        return [], []
    from regard.training.evaluation.robustness import robustness
    from regard.training.report.robustness import robustness_table

    release_memory()
    record = {
        "split": "test" if data.test else "valid",
        **robustness(config, evaluation, trainer.model.eval()),
    }
    metrics.add({"kind": "robustness", "step": trainer.progress.step, **record})
    return robustness_table(config.task.name, record["modified"])


def choose_best(trainer: Trainer, metrics: Metrics) -> str:
    """Load the best checkpoint, or the average of the newest if it validates better; in words."""
    progress, model, folder, train = trainer.progress, trainer.model, trainer.folder, trainer.config.train
    newest = [storage.checkpoint_folder(folder, step) for step in trainer.scheduled_steps()[-train.average :]]
    averaged = intact(newest, metrics) if train.average > 1 else []
    best = progress.best_step
    if averaged:
        storage.load_weights_into(model, storage.average_weights(averaged), folder)
        name = f"average of the checkpoints {', '.join(path.name for path in averaged)}"
        if trainer.data.valid is None:
            return name
        before = progress.validations_since_best
        record = trainer.validate(SingleProcess())
        trainer.update_best(record)
        metrics.add({**record, "kind": "average"})
        if progress.validations_since_best <= before:
            return name
    if best is None:
        if averaged:
            raise ValueError("an average without validation is chosen above")
        return f"last checkpoint, step {progress.step}"
    chosen = storage.checkpoint_folder(folder, best)
    if not intact([chosen], metrics):
        last = latest_checkpoint(folder, metrics.listener.log)
        if last is None:
            raise RegardError(
                f"{folder}: its checkpoints are gone; begin a new run", code="E_CHECKPOINT_DAMAGED"
            )
        storage.load_weights_into(model, last.model, folder)
        return f"last checkpoint, step {last.state['step']}, because the best one is damaged"
    storage.load_weights_into(model, storage.load_checkpoint(chosen).model, folder)
    return f"best checkpoint by {train.metric} on the validation data, step {best}"


def intact(folders: list[Path], metrics: Metrics) -> list[Path]:
    """The checkpoints whose checksums are right; logs the others."""
    whole = [path for path in folders if storage.is_complete(path)]
    for path in folders:
        if path not in whole:
            metrics.listener.log(f"{path}: damaged, and skipped")
    return whole


def run_record(trainer: Trainer, chosen: str) -> Record:
    """What the whole run was and cost; times are seconds, all resumptions included."""
    state, machine, data = trainer.progress.to_state(), trainer.machine, trainer.data
    counted = ("step", "tokens", "flops", "seconds", "updating", "waiting", "validating", "saving")
    return {
        "kind": "run",
        **{name: state[name] for name in counted},
        "epochs": trainer.stream.epochs_done,
        "chosen": chosen,
        "parameters": parameters(trainer.model),
        "vocabulary": [len(tokenizer) for tokenizer in data.tokenizers],
        "device": str(machine.device),
        "precision": machine.precision,
        "threads": machine.threads,
        "peak": measured_peak(machine),
    }


def card_scores(task: TaskName, records: list[Record]) -> dict[str, str]:
    """The scores of the final records, for the model card."""
    from regard.training.report import main_scores

    scores = {}
    for record in records:
        for measure in main_scores(task):
            if measure.value_in(record) is not None:
                signature = record.get(f"{measure.key}_signature")
                name = f"{record['kind']}: {measure.name}" + (f" ({signature})" if signature else "")
                scores[name] = measure.format({**record, f"{measure.key}_interval": None})
    return scores
