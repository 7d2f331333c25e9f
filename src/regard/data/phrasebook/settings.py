"""What goes with what: which places and manners make sense with which verb."""

from typing import Final

from regard.data.phrasebook.nouns import NOUNS, PLACES
from regard.data.phrasebook.structure import Fixed, Noun
from regard.data.phrasebook.words import AT_HOME, IN_CITIES, MANNER

_MANNERS_OF = {
    "quickly": "eat drink read write repair wash open close run drive work answer solve tidy translate learn",
    "slowly": "eat drink read write drive open close walk dance go",
    "carefully": "open close wash clean drive repair translate",
    "quietly": "sing laugh open close work cry wait",
    "patiently": "wait listen help correct",
    "secretly": "read write photograph hide follow eat visit meet cry",
    "happily": "sing dance laugh smile",
}
_EATING = "restaurant café kitchen garden park hotel office"
_STUDYING = "library garden park office café bedroom school university"
_TRADING = "market shop city village"
_OUTSIDE = "park garden zoo beach lake river forest farm island city village bridge"
_ANYWHERE = " ".join(place.english[0] for place in PLACES)
_PLACES_OF = {
    _EATING: "eat drink order",
    _STUDYING: "read write learn translate correct think",
    "office school library university café": "solve discuss",
    _TRADING: "buy sell",
    _ANYWHERE: "meet wait laugh cry smile stand sit look see lose find",
    "kitchen restaurant hotel": "cook bake",
    _OUTSIDE: "photograph paint draw feed walk dance",
    "hotel bedroom garden park beach forest hospital": "sleep",
    "hotel hospital bedroom village city farm island": "stay",
    "office factory hospital school shop hotel garden library zoo museum bakery farm theatre": "work",
    "city village island farm hotel": "live",
    "market city bakery village": "shop",
    "garden kitchen café hotel": "have",
    "station airport hotel office school village university theatre": "arrive",
    "church park theatre garden bathroom school": "sing",
}
_FIXED_PLACES_OF = {"work live stay arrive": IN_CITIES, "stay work eat sleep have wait": (AT_HOME,)}


def _invert_manners() -> dict[str, tuple[Fixed, ...]]:
    inverted: dict[str, list[Fixed]] = {}
    for manner, verbs in _MANNERS_OF.items():
        for verb in verbs.split():
            inverted.setdefault(verb, []).append(MANNER[manner])
    return {verb: tuple(manners) for verb, manners in inverted.items()}


def _invert_places() -> dict[str, tuple[Noun | Fixed, ...]]:
    inverted: dict[str, list[Noun | Fixed]] = {}
    for places, verbs in _PLACES_OF.items():
        for verb in verbs.split():
            inverted.setdefault(verb, []).extend(NOUNS[place] for place in places.split())
    for fixed_verbs, fixed in _FIXED_PLACES_OF.items():
        for verb in fixed_verbs.split():
            inverted.setdefault(verb, []).extend(fixed)
    return {verb: tuple(places) for verb, places in inverted.items()}


# By the base form of the English verb.
MANNERS_OF: Final = _invert_manners()
PLACES_OF: Final = _invert_places()
SURFACES: Final = tuple(
    NOUNS[name] for name in ["table", "chair", "bed", "sofa", "shelf", "desk", "carpet", "bench"]
)
