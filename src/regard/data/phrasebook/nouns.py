"""The nouns, by class: `english[/plural] gender German [genitive] plural`, entries separated by `;`.

Feminine nouns need no genitive form. A plural of `-` marks a mass noun. A masculine genitive in -n marks
the weak declension, which shows that form in every case but the nominative. Every English word has one
German word and the reverse, also across classes, so that a translation can be judged by exact match.
"""

from typing import Final

from regard.data.phrasebook.inflection import english_plural, german_cases
from regard.data.phrasebook.structure import Adjective, Noun, PlaceKind
from regard.data.phrasebook.words import ADJECTIVES

_PEOPLE = """
man/men m Mann Mannes Männer; woman/women f Frau Frauen; child/children n Kind Kindes Kinder;
girl n Mädchen Mädchens Mädchen; boy m Junge Jungen Jungen; friend m Freund Freundes Freunde;
neighbour m Nachbar Nachbarn Nachbarn; teacher f Lehrerin Lehrerinnen; doctor m Arzt Arztes Ärzte;
nurse f Krankenschwester Krankenschwestern; student m Student Studenten Studenten;
colleague f Kollegin Kolleginnen; guest m Gast Gastes Gäste; customer m Kunde Kunden Kunden;
waiter m Kellner Kellners Kellner; chef m Koch Kochs Köche; baker m Bäcker Bäckers Bäcker;
farmer m Bauer Bauern Bauern; singer f Sängerin Sängerinnen; painter m Maler Malers Maler;
writer f Schriftstellerin Schriftstellerinnen; lawyer f Anwältin Anwältinnen;
judge m Richter Richters Richter; boss f Chefin Chefinnen; engineer m Ingenieur Ingenieurs Ingenieure;
pilot m Pilot Piloten Piloten; policeman/policemen m Polizist Polizisten Polizisten;
tourist m Tourist Touristen Touristen; scientist f Wissenschaftlerin Wissenschaftlerinnen;
actor m Schauspieler Schauspielers Schauspieler; photographer f Fotografin Fotografinnen;
gardener m Gärtner Gärtners Gärtner
"""
_FAMILY = """
brother m Bruder Bruders Brüder; sister f Schwester Schwestern; mother f Mutter Mütter;
father m Vater Vaters Väter; son m Sohn Sohnes Söhne; daughter f Tochter Töchter;
uncle m Onkel Onkels Onkel; aunt f Tante Tanten; grandmother f Großmutter Großmütter;
grandfather m Großvater Großvaters Großväter; niece f Nichte Nichten; nephew m Neffe Neffen Neffen
"""
_ANIMALS = """
cat f Katze Katzen; dog m Hund Hundes Hunde; horse n Pferd Pferdes Pferde; bird m Vogel Vogels Vögel;
cow f Kuh Kühe; mouse/mice f Maus Mäuse; rabbit n Kaninchen Kaninchens Kaninchen;
pig n Schwein Schweins Schweine; duck f Ente Enten; goat f Ziege Ziegen; chicken n Huhn Huhns Hühner;
donkey m Esel Esels Esel
"""
_FRUIT = """
apple m Apfel Apfels Äpfel; egg n Ei Eies Eier; banana f Banane Bananen; pear f Birne Birnen;
orange f Orange Orangen; tomato/tomatoes f Tomate Tomaten; potato/potatoes f Kartoffel Kartoffeln;
carrot f Karotte Karotten; cherry f Kirsche Kirschen; biscuit m Keks Kekses Kekse;
lemon f Zitrone Zitronen; strawberry f Erdbeere Erdbeeren; sausage f Wurst Würste;
cake m Kuchen Kuchens Kuchen; nut f Nuss Nüsse
"""
_FOOD = """
bread n Brot Brotes -; cheese m Käse Käses -; meat n Fleisch Fleisches -; butter f Butter -;
rice m Reis Reises -; soup f Suppe -; salad m Salat Salats -; honey m Honig Honigs -;
chocolate f Schokolade -; sugar m Zucker Zuckers -; fish m Fisch Fisches -; jam f Marmelade -
"""
_DRINKS = """
water n Wasser Wassers -; coffee m Kaffee Kaffees -; tea m Tee Tees -; milk f Milch -;
juice m Saft Saftes -; beer n Bier Biers -; wine m Wein Weins -; lemonade f Limonade -
"""
_READING = """
book n Buch Buches Bücher; newspaper f Zeitung Zeitungen; magazine f Zeitschrift Zeitschriften;
novel m Roman Romans Romane; recipe n Rezept Rezepts Rezepte
"""
_WRITING = """
letter m Brief Briefes Briefe; poem n Gedicht Gedichts Gedichte; message f Nachricht Nachrichten;
text m Text Textes Texte; report m Bericht Berichts Berichte; postcard f Postkarte Postkarten;
story f Geschichte Geschichten; article m Artikel Artikels Artikel
"""
_CLOTHES = """
coat m Mantel Mantels Mäntel; hat m Hut Hutes Hüte; shirt n Hemd Hemdes Hemden;
dress n Kleid Kleides Kleider; jacket f Jacke Jacken; scarf/scarves m Schal Schals Schals;
skirt m Rock Rockes Röcke; sweater m Pullover Pullovers Pullover; cap f Mütze Mützen;
tie f Krawatte Krawatten; belt m Gürtel Gürtels Gürtel
"""
_JEWELS = """
watch f Uhr Uhren; ring m Ring Ringes Ringe; necklace f Halskette Halsketten;
bracelet n Armband Armbands Armbänder
"""
_THINGS = """
bag f Tasche Taschen; key m Schlüssel Schlüssels Schlüssel;
umbrella m Regenschirm Regenschirms Regenschirme; cup f Tasse Tassen; glass n Glas Glases Gläser;
plate m Teller Tellers Teller; knife/knives n Messer Messers Messer; fork f Gabel Gabeln;
spoon m Löffel Löffels Löffel; photo n Foto Fotos Fotos; picture n Bild Bildes Bilder;
pencil m Bleistift Bleistifts Bleistifte; suitcase m Koffer Koffers Koffer; basket m Korb Korbes Körbe;
ball m Ball Balles Bälle; doll f Puppe Puppen; ticket f Fahrkarte Fahrkarten; map f Landkarte Landkarten;
present n Geschenk Geschenks Geschenke; candle f Kerze Kerzen; blanket f Decke Decken;
towel n Handtuch Handtuchs Handtücher; wallet m Geldbeutel Geldbeutels Geldbeutel; coin f Münze Münzen;
stamp f Briefmarke Briefmarken; parcel n Paket Pakets Pakete; flower f Blume Blumen; vase f Vase Vasen
"""
_DEVICES = """
lamp f Lampe Lampen; computer m Computer Computers Computer; machine f Maschine Maschinen;
television m Fernseher Fernsehers Fernseher; radio n Radio Radios Radios; camera f Kamera Kameras;
printer m Drucker Druckers Drucker; phone n Telefon Telefons Telefone
"""
_VEHICLES = """
car n Auto Autos Autos; bicycle n Fahrrad Fahrrads Fahrräder; boat n Boot Bootes Boote;
truck m Lastwagen Lastwagens Lastwagen
"""
_TRANSPORT = """
train m Zug Zuges Züge; bus m Bus Busses Busse; ship n Schiff Schiffes Schiffe;
tram f Straßenbahn Straßenbahnen; plane n Flugzeug Flugzeugs Flugzeuge
"""
_FURNITURE = """
table m Tisch Tisches Tische; chair m Stuhl Stuhls Stühle; bed n Bett Bettes Betten;
sofa n Sofa Sofas Sofas; shelf/shelves n Regal Regals Regale;
desk m Schreibtisch Schreibtisches Schreibtische; carpet m Teppich Teppichs Teppiche; bench f Bank Bänke
"""
_OPENINGS = """
door f Tür Türen; window n Fenster Fensters Fenster; box f Kiste Kisten; bottle f Flasche Flaschen;
cupboard m Schrank Schranks Schränke; drawer f Schublade Schubladen
"""
_IDEAS = """
question f Frage Fragen; answer f Antwort Antworten; problem n Problem Problems Probleme;
idea f Idee Ideen; exercise f Übung Übungen; word n Wort Wortes Wörter; sentence m Satz Satzes Sätze;
plan m Plan Planes Pläne; mistake m Fehler Fehlers Fehler; joke m Witz Witzes Witze; rule f Regel Regeln;
dream m Traum Traumes Träume
"""
_EVENTS = """
meeting f Besprechung Besprechungen; break f Pause Pausen; journey f Reise Reisen; party f Feier Feiern;
concert n Konzert Konzerts Konzerte; exam f Prüfung Prüfungen; wedding f Hochzeit Hochzeiten;
trip m Ausflug Ausflugs Ausflüge
"""
_SONGS = (
    "song n Lied Liedes Lieder; film m Film Filmes Filme; play n Theaterstück Theaterstücks Theaterstücke"
)
_CAUSES = """
rain m Regen Regens -; storm m Sturm Sturmes -; weather n Wetter Wetters -; noise m Lärm Lärms -;
snow m Schnee Schnees -; heat f Hitze -; traffic m Verkehr Verkehrs -
"""
_INSTRUMENTS = "piano n Klavier Klaviers -; guitar f Gitarre -; violin f Geige -; trumpet f Trompete -"
_GAMES = "chess n Schach Schachs -; football m Fußball Fußballs -; tennis n Tennis Tennis -; cards p Karten -"
_PROGRAMS = """
program n Programm Programms Programme; command m Befehl Befehls Befehle
"""

# The places, by how one is in them and how one goes to them in either language.
_PLACES: dict[tuple[str, str, str, str], str] = {
    ("in", "in", "to", "in"): """
park m Park Parks Parks; garden m Garten Gartens Gärten; kitchen f Küche Küchen; city f Stadt Städte;
village n Dorf Dorfes Dörfer; office n Büro Büros Büros; shop m Laden Ladens Läden;
restaurant n Restaurant Restaurants Restaurants; hotel n Hotel Hotels Hotels; church f Kirche Kirchen;
library f Bibliothek Bibliotheken; museum n Museum Museums Museen; cinema n Kino Kinos Kinos;
theatre n Theater Theaters Theater; hospital n Krankenhaus Krankenhauses Krankenhäuser;
forest m Wald Waldes Wälder; café n Café Cafés Cafés; cellar m Keller Kellers Keller;
zoo m Zoo Zoos Zoos; bathroom n Badezimmer Badezimmers Badezimmer;
bedroom n Schlafzimmer Schlafzimmers Schlafzimmer
""",
    ("at", "an", "to", "zu"): """
station m Bahnhof Bahnhofs Bahnhöfe; lake m See Sees Seen; beach m Strand Strandes Strände;
airport m Flughafen Flughafens Flughäfen; university f Universität Universitäten;
river m Fluss Flusses Flüsse; bridge f Brücke Brücken
""",
    (
        "at",
        "in",
        "to",
        "zu",
    ): "school f Schule Schulen; bakery f Bäckerei Bäckereien; factory f Fabrik Fabriken",
    (
        "at",
        "auf",
        "to",
        "auf",
    ): "market m Markt Marktes Märkte; playground m Spielplatz Spielplatzes Spielplätze",
    ("on", "auf", "to", "auf"): "island f Insel Inseln; farm m Bauernhof Bauernhofs Bauernhöfe",
}
_BUILDINGS = "house n Haus Hauses Häuser; flat f Wohnung Wohnungen; castle n Schloss Schlosses Schlösser"
_ROOMS = "room n Zimmer Zimmers Zimmer"


_ADJECTIVE_CLASS = {
    "family": "people",
    "writing": "reading",
    "jewels": "things",
    "devices": "things",
    "vehicles": "things",
    "transport": "things",
    "furniture": "things",
    "openings": "things",
    "buildings": "places",
    "rooms": "places",
}


def _adjectives_of(noun: str, kind: str) -> tuple[Adjective, ...]:
    if noun in ("machine", "computer"):
        return ADJECTIVES["machines"]
    return ADJECTIVES.get(_ADJECTIVE_CLASS.get(kind, kind), ())


def _noun(entry: str, kind: str, place: PlaceKind | None) -> Noun:
    fields = entry.split()
    english, _, irregular = fields[0].partition("/")
    gender = "mfnp".index(fields[1])
    singular, plural = fields[2], fields[-1]
    genitive = fields[3] if len(fields) == 5 else singular
    return Noun(
        english=(english, irregular or english_plural(english)),
        gender=gender,
        german=german_cases(gender, singular, genitive, plural),
        natural=("he", "she", "", "")[gender],
        kind=kind,
        adjectives=_adjectives_of(english, kind),
        place=place,
    )


def _nouns(table: str, kind: str, place: PlaceKind | None = None) -> tuple[Noun, ...]:
    return tuple(_noun(entry, kind, place) for entry in table.split(";") if entry.strip())


PLACES: Final = tuple(
    noun for kind, table in _PLACES.items() for noun in _nouns(table, "places", PlaceKind(*kind))
)
_TABLES: Final = {
    "people": _PEOPLE,
    "family": _FAMILY,
    "animals": _ANIMALS,
    "fruit": _FRUIT,
    "food": _FOOD,
    "drinks": _DRINKS,
    "reading": _READING,
    "writing": _WRITING,
    "clothes": _CLOTHES,
    "jewels": _JEWELS,
    "things": _THINGS,
    "devices": _DEVICES,
    "vehicles": _VEHICLES,
    "transport": _TRANSPORT,
    "furniture": _FURNITURE,
    "openings": _OPENINGS,
    "ideas": _IDEAS,
    "events": _EVENTS,
    "songs": _SONGS,
    "causes": _CAUSES,
    "instruments": _INSTRUMENTS,
    "games": _GAMES,
    "programs": _PROGRAMS,
    "buildings": _BUILDINGS,
    "rooms": _ROOMS,
}
CLASSES: Final[dict[str, tuple[Noun, ...]]] = {
    "places": PLACES,
    **{kind: _nouns(table, kind) for kind, table in _TABLES.items()},
}
NOUNS: Final[dict[str, Noun]] = {noun.english[0]: noun for members in CLASSES.values() for noun in members}
