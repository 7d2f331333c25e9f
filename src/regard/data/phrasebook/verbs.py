"""The verbs with what they take: `english | german | object classes or nouns | options`, one verb a line.

English: `base past participle gerund`, as far as irregular; `+up` is a particle, `/for` a preposition.
German: `infinitive`, then `er-form past participle` of a strong verb; a hyphen marks a separable particle.
Options: `sein` (perfect auxiliary), `stative` (no progressive), `state` (no perfect either), `dative`,
`continuous` (always progressive in English), `/auf` (the preposition of the object).
"""

from typing import Final, NamedTuple

from regard.data.phrasebook.inflection import make_verb
from regard.data.phrasebook.nouns import CLASSES, NOUNS
from regard.data.phrasebook.structure import Modal, Noun, Verb

_TRANSITIVE = """
eat ate eaten | essen isst aß gegessen | fruit food |
drink drank drunk | trinken trinkt trank getrunken | drinks |
buy bought | kaufen | fruit food drinks reading clothes jewels things devices vehicles furniture flat house |
sell sold | verkaufen | fruit cheese honey reading clothes jewels devices vehicles furniture house flat |
read read read | lesen liest las gelesen | reading writing |
write wrote written | schreiben schreibt schrieb geschrieben | writing novel book |
wear wore worn | tragen trägt trug getragen | clothes jewels | continuous
see saw seen | sehen sieht sah gesehen | people animals transport castle film lake | stative
know knew known | kennen kennt kannte gekannt | people novel film song castle | state
love loved | lieben | people animals city song garden | state
like liked | mögen mag mochte gemocht | people animals fruit food drinks songs reading | state
find found | finden findet fand gefunden | things animals jewels answer mistake | stative
look /for | suchen | things people animals jewels hotel restaurant station |
need needed | brauchen | things devices vehicles clothes drinks | state
have had | haben hat hatte gehabt | animals vehicles devices things question problem idea plan | state
forget forgot forgotten forgetting | vergessen vergisst vergaß vergessen | things word answer rule | stative
lose lost | verlieren verliert verlor verloren | key wallet ring umbrella ticket coin jewels ball | stative
repair repaired | reparieren | devices vehicles jewels furniture |
clean cleaned | putzen | door window cupboard rooms kitchen bathroom shelf |
wash washed | waschen wäscht wusch gewaschen | clothes car cup plate glass spoon fork apple carrot potato |
open opened | auf-machen | openings parcel suitcase letter |
close closed | zu-machen | openings suitcase |
call called | an-rufen ruft rief gerufen | people family |
invite invited | ein-laden lädt lud geladen | people family |
pick picked +up | ab-holen | people family parcel suitcase ticket |
bring brought +along | mit-bringen bringt brachte gebracht | present cake map camera photo drinks food |
visit visited | besuchen | people family museum castle city zoo school |
meet met met | treffen trifft traf getroffen | people family |
hear heard | hören | people family song dog bird noise rain | stative
understand understood | verstehen versteht verstand verstanden | ideas text poem joke | stative
use used | benutzen | devices vehicles knife map umbrella |
turn turned +on | ein-schalten | devices |
turn turned +off | aus-schalten | devices |
put put put putting +on | an-ziehen zieht zog gezogen | clothes |
take took taken +off | aus-ziehen zieht zog gezogen | clothes |
try tried +on | an-probieren | clothes jewels |
try tried +out | aus-probieren | devices recipe bicycle idea |
cook cooked | kochen | soup rice meat fish potato egg |
bake baked | backen backt backte gebacken | cake bread biscuit |
paint painted | malen | picture flower lake castle bridge |
draw drew drawn | zeichnen | animals map house picture |
sing sang sung | singen singt sang gesungen | song |
photograph photographed | fotografieren | castle bridge animals lake transport buildings |
tidy tidied +up | auf-räumen | rooms kitchen cellar cupboard desk bedroom |
prepare prepared | vor-bereiten bereitet bereitete bereitet | events soup salad |
choose chose chosen | aus-wählen | clothes jewels things reading songs |
throw threw thrown +away | weg-werfen wirft warf geworfen | things newspaper writing shirt chair |
give gave given +back | zurück-geben gibt gab gegeben | reading key ring things camera |
get got got getting /to_know | kennen-lernen | people | stative
hide hid hidden | verstecken | things jewels letter |
order ordered | bestellen | food drinks cake |
pay paid /for | bezahlen | drinks ticket salad soup cake | stative
translate translated | übersetzen | writing novel sentence |
correct corrected | korrigieren | text sentence mistake exercise report exam |
learn learned | lernen | poem word rule song |
answer answered | beantworten | question letter message |
solve solved | lösen | problem exercise |
discuss discussed | besprechen bespricht besprach besprochen | problem plan idea film novel report |
feed fed | füttern | animals |
build built | bauen | house bridge boat bench shelf |
rent rented | mieten | flat car house boat room |
look looked /at | an-schauen | picture photo map castle people vehicles |
miss missed | verpassen | transport film concert break meeting | stative
"""

_GIVING = """
give gave given | geben gibt gab gegeben | things reading fruit answer |
show showed shown | zeigen | things reading picture photo devices castle jewels letter |
send sent | schicken | writing parcel photo present flower book |
lend lent | leihen leiht lieh geliehen | bicycle book umbrella car camera novel pencil suitcase coat |
bring brought | bringen bringt brachte gebracht | things reading letter newspaper glass cup fruit |
tell told | erzählen | story joke dream |
offer offered | an-bieten bietet bot geboten | glass cup fruit cake |
sell sold | verkaufen | vehicles house jewels bicycle flat |
"""

_HELPING = """
help helped | helfen hilft half geholfen | people family | dative
thank thanked | danken | people family | dative
follow followed | folgen | people animals | dative sein
answer answered | antworten | people family | dative
trust trusted | vertrauen | people family | dative state
congratulate congratulated | gratulieren | people family | dative
listen listened /to | zu-hören | people family singer writer | dative
agree agreed /with | zu-stimmen | people family | dative stative
"""

_PREPOSITIONAL = """
wait waited /for | warten | people family transport answer letter | /auf
think thought /about | nach-denken denkt dachte gedacht | ideas journey | /über
talk talked /about | sprechen spricht sprach gesprochen | ideas people events film novel weather | /über
laugh laughed /at | lachen | joke story film mistake hat | /über
look looked /after | auf-passen | people animals family | /auf
ask asked /for | bitten bittet bat gebeten | drinks answer recipe key | /um
dream dreamt dreamt /of | träumen | journey house castle lake island party | /von dative
take took taken /part_in | teil-nehmen nimmt nahm genommen | events | /an dative
begin began begun beginning /with | an-fangen fängt fing gefangen | exercise exam report novel | /mit dative
"""

# What people do somewhere.
_RESTING = """
sleep slept | schlafen schläft schlief geschlafen | |
work worked | arbeiten | |
dance danced | tanzen | |
wait waited | warten | |
sit sat sat sitting | sitzen sitzt saß gesessen | |
stand stood | stehen steht stand gestanden | |
cry cried | weinen | |
laugh laughed | lachen | |
smile smiled | lächeln | |
walk walked | spazieren_-gehen geht ging gegangen | | sein
live lived | wohnen | | stative
stay stayed | bleiben bleibt blieb geblieben | | sein stative
think thought | nach-denken denkt dachte gedacht | |
shop shopped shopped shopping | ein-kaufen | |
have had had +breakfast | frühstücken | |
arrive arrived | an-kommen kommt kam gekommen | | sein stative
sing sang sung | singen singt sang gesungen | |
"""

_DAILY = """
get got got getting +up | auf-stehen steht stand gestanden | | sein stative
wake woke woken +up | auf-wachen | | sein stative
fall fell fallen +asleep | ein-schlafen schläft schlief geschlafen | | sein stative
go went gone +out | aus-gehen geht ging gegangen | | sein stative
come came come +back | zurück-kommen kommt kam gekommen | | sein stative
have had had +breakfast | frühstücken | |
"""

_MOTION = """
go went gone | gehen geht ging gegangen | | sein stative
drive drove driven | fahren fährt fuhr gefahren | | sein
run ran run running | rennen rennt rannte gerannt | | sein
hurry hurried | eilen | | sein
"""

_TRAVEL = """
fly flew flown | fliegen fliegt flog geflogen | | sein
travel travelled travelled travelling | reisen | | sein
move moved | um-ziehen zieht zog gezogen | | sein stative
drive drove driven | fahren fährt fuhr gefahren | | sein
"""

_SINGLE = {
    "be": ("be was been", "sein ist war gewesen", "sein stative"),
    "play": ("play played", "spielen", ""),
    "rain": ("rain rained", "regnen", "continuous"),
    "snow": ("snow snowed", "schneien", "continuous"),
    "cost": ("cost cost cost", "kosten", "state"),
    "lie": ("lie lay lain lying", "liegen liegt lag gelegen", "state"),
    "put": ("put put put putting", "legen", ""),
    "depart": ("depart departed", "ab-fahren fährt fuhr gefahren", "sein stative"),
    "arrive": ("arrive arrived", "an-kommen kommt kam gekommen", "sein stative"),
    "execute": ("execute executed", "aus-führen", ""),
    "execute quickly": ("execute executed", "laufen läuft lief gelaufen", "sein stative"),
    "know": ("know knew known", "wissen weiß wusste gewusst", "state"),
    "say": ("say said", "sagen", "stative"),
    "believe": ("believe believed", "glauben", "state"),
    "hope": ("hope hoped", "hoffen", "state"),
    "think": ("think thought", "denken denkt dachte gedacht", "state"),
    "hear": ("hear heard", "hören", "stative"),
    "write": ("write wrote written", "schreiben schreibt schrieb geschrieben", "stative"),
    "forget": ("forget forgot forgotten", "vergessen vergisst vergaß vergessen", "stative"),
    "ask": ("ask asked", "fragen", "stative"),
    "try": ("try tried", "versuchen", "stative"),
    "plan": ("plan planned", "planen", "stative"),
    "promise": ("promise promised", "versprechen verspricht versprach versprochen", "stative"),
    "decide": ("decide decided", "beschließen beschließt beschloss beschlossen", "stative"),
}


class Frame(NamedTuple):
    verb: Verb
    objects: tuple[Noun, ...]


def _frames(table: str) -> tuple[Frame, ...]:
    frames = []
    for line in table.strip().splitlines():
        english, german, objects, options = (field.strip() for field in line.split("|"))
        nouns: list[Noun] = []
        for name in objects.split():
            nouns.extend(CLASSES[name] if name in CLASSES else (NOUNS[name],))
        frames.append(Frame(make_verb(english, german, options), tuple(dict.fromkeys(nouns))))
    return tuple(frames)


TRANSITIVE: Final = _frames(_TRANSITIVE)
GIVING: Final = _frames(_GIVING)
HELPING: Final = _frames(_HELPING)
PREPOSITIONAL: Final = _frames(_PREPOSITIONAL)
RESTING: Final = _frames(_RESTING)
DAILY: Final = _frames(_DAILY)
MOTION: Final = _frames(_MOTION)
TRAVEL: Final = _frames(_TRAVEL)
FRAMES: Final = (*TRANSITIVE, *GIVING, *HELPING, *PREPOSITIONAL, *RESTING, *DAILY, *MOTION, *TRAVEL)
SINGLE: Final[dict[str, Verb]] = {name: make_verb(*entry) for name, entry in _SINGLE.items()}
SINGLE.update(
    (" ".join(filter(None, (frame.verb.english[0], frame.verb.english_particle))), frame.verb)
    for frame in (*TRANSITIVE, *RESTING, *MOTION)
    if frame.verb.english[0] in {"buy", "sell", "need", "use", "repair", "throw", "walk", "go"}
)

MODALS: Final[dict[str, Modal]] = {
    "can": Modal(("can",) * 4, "", ("kann", "kannst", "kann", "können")),
    "must": Modal(("must",) * 4, "", ("muss", "musst", "muss", "müssen")),
    "should": Modal(("should",) * 4, "", ("sollte", "solltest", "sollte", "sollten")),
    "would like to": Modal(("would",) * 4, "like to", ("möchte", "möchtest", "möchte", "möchten")),
    "want to": Modal(("",) * 4, "to", ("will", "willst", "will", "wollen")),
    "be allowed to": Modal(("am", "are", "is", "are"), "allowed to", ("darf", "darfst", "darf", "dürfen")),
    "will": Modal(("will",) * 4, "", ("werde", "wirst", "wird", "werden")),
}
