"""What a model reads instead of text: pictures, short videos, sound; and the augmentation of training data.

Fields are named as in transformers' preprocessor_config.json where Regard has no word of its own; the
description names the other one. This module imports pydantic alone, so that the models can import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator, model_validator

from regard.config.model_base import Section

Side = Annotated[int, Field(ge=1, le=8192)]
MOST_POSITIONS = 1 << 16  # of a picture: a hostile folder must not take the memory
ChannelValues = tuple[float, ...]
Resample = Literal["nearest", "bilinear", "bicubic", "lanczos"]


class PictureConfig(Section):
    """What pictures and the frames of a video have."""

    height: Side = Field(description="rows of pixels that the model reads")
    width: Side = Field(description="columns of pixels that the model reads")
    channels: Literal[1, 3] = Field(3, description="1: grey, 3: red, green and blue")
    patch: Side = Field(16, description="side of the square patches, in pixels (patch_size)")
    fit: Literal["squeeze", "crop", "pad"] = Field(
        "squeeze",
        description="pictures of another shape: squeeze them (ViT), crop to the centre, or pad with black",
    )
    resample: Resample = Field("bilinear", description="filter that resizes pictures")
    mean: ChannelValues = Field(
        (0.5,),
        strict=False,
        description="subtracted from values in 0..1: one number, or one for each channel (image_mean)",
    )
    deviation: ChannelValues = Field(
        (0.5,),
        strict=False,
        description="divisor after that: one number, or one for each channel (image_std)",
    )

    @field_validator("mean", "deviation")
    @classmethod
    def _for_each_channel(cls, values: ChannelValues, info: ValidationInfo) -> ChannelValues:
        channels = info.data.get("channels", len(values))
        if len(values) not in (1, channels):
            raise ValueError(
                f"{info.field_name} has {len(values)} numbers for {channels} channels: give one or {channels}"
            )
        if info.field_name == "deviation" and min(values) <= 0:
            raise ValueError("deviation divides: every number of it must be greater than 0")
        return values * channels if len(values) == 1 else values

    @model_validator(mode="after")
    def _check_patches(self) -> PictureConfig:
        for name, side in (("height", self.height), ("width", self.width)):
            if side % self.patch:
                raise ValueError(
                    f"{name} = {side} is not a multiple of patch = {self.patch}: change one of them"
                )
        if (count := self.height * self.width // self.patch**2) > MOST_POSITIONS:
            raise ValueError(f"{count:,} patches are too many, at most {MOST_POSITIONS:,}: enlarge patch")
        return self


class ImageInput(PictureConfig):
    """Pictures, cut into square patches (Dosovitskiy et al. 2021)."""

    kind: Literal["image"] = Field("image", description="pictures")


class VideoInput(PictureConfig):
    """Short videos, cut into tubelets: patches that last some frames (Arnab et al. 2021)."""

    kind: Literal["video"] = Field("video", description="short videos")
    frames: int = Field(8, ge=1, le=1024, description="frames, taken evenly from the video (num_frames)")
    tubelet: int = Field(2, ge=1, le=1024, description="frames in a tubelet (tubelet_size)")

    @model_validator(mode="after")
    def _check_tubelets(self) -> VideoInput:
        if self.frames % self.tubelet:
            raise ValueError(
                f"frames = {self.frames} is not a multiple of tubelet = {self.tubelet}: change one of them"
            )
        return self


class AudioInput(Section):
    """Sound as a log-mel spectrogram: its frames, or patches of it (Gong et al. 2021)."""

    kind: Literal["audio"] = Field("audio", description="sound")
    sample_rate: int = Field(
        16000, ge=1000, le=384_000, description="samples a second, to which sounds are resampled"
    )
    seconds: float = Field(30.0, gt=0, le=600, description="longest sound; the rest is cut off")
    pad: bool = Field(
        True, description="lengthen shorter sounds to `seconds` with silence, as Whisper and AST do"
    )
    mels: int = Field(80, ge=1, le=512, description="bands of the mel spectrogram (num_mel_bins)")
    window: int = Field(400, ge=16, le=65536, description="samples in the window of a frame (n_fft)")
    hop: int = Field(160, ge=1, le=65536, description="samples between the beginnings of two frames")
    scale: Literal["whisper", "kaldi"] = Field(
        "whisper",
        description="whisper: Slaney's mels, log10, 8 decades below the loudest; kaldi: Kaldi's fbank (AST)",
    )
    patch: int | None = Field(
        None, ge=1, le=512, description="side of square patches of the spectrogram (AST: 16); default: frames"
    )
    stride: int | None = Field(
        None, ge=1, le=512, description="distance of two patches (AST: 10); default: patch"
    )
    mean: float = Field(0.0, description="subtracted from the spectrogram (AST: mean)")
    deviation: float = Field(
        1.0, gt=0, description="divisor after that (AST: 2 std, which gives a deviation of 0.5)"
    )

    @property
    def samples(self) -> int:
        """The longest sound, in samples."""
        return round(self.seconds * self.sample_rate)

    @property
    def spectrum_frames(self) -> int:
        """Frames of the longest sound."""
        return self.samples // self.hop

    @model_validator(mode="after")
    def _check_spectrogram(self) -> AudioInput:
        if self.samples < self.hop:
            raise ValueError(f"seconds = {self.seconds} is less than one hop of {self.hop} samples")
        if self.stride is not None and self.patch is None:
            raise ValueError("stride is the distance of patches: give patch, too")
        if self.patch is not None and not self.pad:
            raise ValueError("patches form a grid of fixed size: patch needs pad = true")
        if self.patch is not None and self.patch > min(self.mels, self.spectrum_frames):
            raise ValueError(
                f"patch = {self.patch} is larger than the spectrogram of {self.spectrum_frames} frames and "
                f"{self.mels} mels"
            )
        return self


class PixelText(Section):
    """Pictures as text: `data.pixels = {height = 8, width = 8, levels = 16}`, see regard.inputs.pixels."""

    height: int = Field(ge=1, le=256, description="rows of pixels")
    width: int = Field(ge=1, le=256, description="columns of pixels")
    levels: int = Field(16, ge=2, le=256, description="number of grey values")


class Modifier(Section):
    """One step of data augmentation, applied to training samples at random."""

    IMAGE: ClassVar = ("shift", "flip", "rotate", "erase", "brightness", "contrast", "invert")
    AUDIO: ClassVar = ("shift", "speed", "gain", "noise", "silence")
    FRAMES: ClassVar = ("time_mask", "mel_mask")  # change the spectrogram, not the sound
    CASES: ClassVar = ("upper", "lower", "title")
    WORDS: ClassVar = ("typos", "noise")  # change words, never their number
    ITEMS: ClassVar = (
        "number", "date", "time", "money", "unit", "email", "url", "file", "code", "emoji", "markup",
        "placeholder",
    )  # fmt: skip
    SENTENCES: ClassVar = (
        *CASES, "headline", "no_punctuation", "double_punctuation", *WORDS, "repeat", "spaces", *ITEMS,
    )  # fmt: skip
    TEXT: ClassVar[dict[str, tuple[str, ...]]] = {  # by task
        "translate": SENTENCES, "classify": SENTENCES, "tag": (*CASES, *WORDS), "generate": CASES,
        "fill": CASES,
    }  # fmt: skip
    STRENGTHS: ClassVar[dict[str, float]] = {  # largest; others have none
        "shift": 1024, "rotate": 180, "erase": 1, "brightness": 1, "contrast": 1, "speed": 0.5,
        "gain": 60, "noise": 10, "silence": 1, "time_mask": 1, "mel_mask": 1, "typos": 1, "repeat": 1,
        "spaces": 1,
    }  # fmt: skip
    DEFAULT_STRENGTH: ClassVar = 0.1  # of typos, noise, repeat, spaces

    name: Literal[
        "shift", "flip", "rotate", "erase", "brightness", "contrast", "invert", "speed", "gain", "noise",
        "silence", "time_mask", "mel_mask", "upper", "lower", "title", "headline", "no_punctuation",
        "double_punctuation", "typos", "repeat", "spaces", "number", "date", "time", "money", "unit",
        "email", "url", "file", "code", "emoji", "markup", "placeholder",
    ] = Field(description="what it does")  # fmt: skip
    probability: float = Field(1.0, ge=0.0, le=1.0, description="share of the samples that it changes")
    strength: float = Field(
        0.0,
        ge=0.0,
        description="the most that is drawn; shift: pixels, of sounds the share of the length; "
        "rotate: degrees; erase, silence, time_mask, mel_mask: share; brightness, contrast, speed: change of "
        "the factor 1; gain: decibels; noise: share of the sound's level. Of texts, typos, noise, repeat and "
        "spaces: share of the words, at least one, by default 0.1. Others have none",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_strength(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("name") in (*cls.WORDS, "repeat", "spaces"):
            return {"strength": cls.DEFAULT_STRENGTH, **fields}
        return fields

    @model_validator(mode="after")
    def _check_strength(self) -> Modifier:
        largest = self.STRENGTHS.get(self.name, 0)
        if self.strength > largest:
            raise ValueError(f"{self.name}: strength = {self.strength} is more than {largest:g}")
        if largest and not self.strength:
            raise ValueError(f"{self.name}: strength = 0 changes nothing; give up to {largest:g}")
        return self

    @property
    def label(self) -> str:
        """As `regard evaluate --modify` reads it: upper, typos=0.1."""
        return f"{self.name}={self.strength:g}" if self.strength else self.name

    def suits(self, kind: str, task: str = "classify") -> bool:
        """Whether inputs of this kind ("text", "image", "video", "audio") can be modified so in a task."""
        if kind == "text":
            return self.name in self.TEXT.get(task, ())
        return self.name in ((*self.AUDIO, *self.FRAMES) if kind == "audio" else self.IMAGE)


def unsuitable(modifiers: Sequence[Modifier], kind: str, task: str, is_sentence: bool) -> str:
    """Why a modifier cannot change such inputs, "" if all can; `is_sentence`: texts have no prefix."""
    if wrong := [each.name for each in modifiers if not each.suits(kind, task)]:
        names = ", ".join(Modifier.TEXT.get(task, ())) or "none"
        where = f" to {task}, which has {names}" if kind == "text" else ""
        return f'"{wrong[0]}" cannot change an input of the kind "{kind}"{where}'
    if modifiers and kind == "text" and not is_sentence:
        return "they change neither pictures as text nor corpora with `prefix` or `say`"
    return ""


InputConfig = ImageInput | VideoInput | AudioInput
INPUTS: dict[str, type[InputConfig]] = {
    each.model_fields["kind"].default: each for each in get_args(InputConfig)
}
AnyInputConfig = Annotated[InputConfig, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[InputConfig] = TypeAdapter(AnyInputConfig)


def parse_input(fields: dict[str, Any]) -> InputConfig:
    """The section of the kind that `kind` names."""
    return _ADAPTER.validate_python(fields)
