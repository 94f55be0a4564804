"""What the embedded model knows: small tables of facts, each with the ways in which it is said.

A fact is said in three ways (a bullet, a formal and a casual sentence), and a measure in two systems of units. The same
templates write the training text and read the model's answers back, so that an answer is exactly right or wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

UNITS = {
    "kg": ("kg", "pounds", 2.2),
    "g": ("grams", "ounces", 1 / 28),
    "cm": ("cm", "inches", 1 / 2.5),
    "ml": ("ml", "fluid ounces", 1 / 30),
    "km2": ("square km", "square miles", 0.386),
}
"""Metric name, imperial name, and imperial units in one metric unit. ``c`` (temperature) is its own formula."""


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of fact is said; ``{v}`` is its value."""

    key: str
    label: str
    formal: str
    casual: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """Something to ask about: its name, its kind, and its facts (key → value as in the table)."""

    name: str
    kind: str
    values: tuple[str, ...]

    @property
    def forms(self) -> tuple[Form, ...]:
        return FORMS[self.kind]

    def in_words(self, form: Form, imperial: bool) -> str:
        """The value of a fact as text, in the asked-for units."""
        value = self.values[self.forms.index(form)]
        return measure(value, form.unit, imperial) if form.unit else value


def measure(value: str, unit: str, imperial: bool) -> str:
    """``("9", "kg", True)`` → ``"20 pounds"``."""
    number = float(value)
    if unit == "c":
        return (
            f"{round(number * 1.8 + 32)} degrees Fahrenheit"
            if imperial
            else f"{round(number)} degrees Celsius"
        )
    metric, other, factor = UNITS[unit]
    return f"{max(round(number * factor), 1)} {other}" if imperial else f"{round(number)} {metric}"


FORMS: dict[str, tuple[Form, ...]] = {
    "animal": (
        Form("weight", "Weight", "It weighs about {v}.", "It tips the scales at {v}.", "kg"),
        Form("kind", "Kind", "It is a {v}.", "It's a {v}, by the way."),
        Form("home", "Home", "It inhabits {v}.", "You'll find it in {v}."),
        Form("food", "Food", "It feeds mainly on {v}.", "It just loves {v}."),
        Form("length", "Length", "It measures about {v}.", "It gets to {v} or so.", "cm"),
        Form("life", "Lifespan", "It lives for about {v} years.", "It sticks around for {v} years."),
    ),
    "city": (
        Form("heat", "Summer", "Summers reach about {v}.", "Summers get up to {v}.", "c"),
        Form("country", "Country", "It is situated in {v}.", "It's over in {v}."),
        Form("water", "Water", "It lies on the {v}.", "It sits right by the {v}."),
        Form("fame", "Famous for", "It is renowned for {v}.", "Folks go there for {v}."),
        Form("area", "Area", "It covers about {v}.", "It spreads over {v}.", "km2"),
        Form(
            "people",
            "People",
            "It has about {v} million inhabitants.",
            "Around {v} million people live there.",
        ),
    ),
    "food": (
        Form("weight", "Weight", "One weighs about {v}.", "One comes in at {v}.", "g"),
        Form("kind", "Kind", "It is a {v}.", "It's a {v}, by the way."),
        Form("colour", "Colour", "It is {v} when ripe.", "It turns {v} when it's ready."),
        Form("season", "Season", "It is in season in {v}.", "It's best in {v}."),
        Form("place", "Grown in", "It is cultivated in {v}.", "They grow it in {v}."),
        Form("store", "Keep at", "It is best kept at {v}.", "It likes to be kept at {v}.", "c"),
    ),
    "task": (
        Form("first", "First", "First, {v}.", "Kick off and {v}."),
        Form("amount", "Amount", "One requires {v} of water.", "Grab {v} of water.", "ml"),
        Form("then", "Then", "Then, {v}.", "Next up, {v}."),
        Form("last", "Finally", "Finally, {v}.", "To wrap up, {v}."),
        Form("time", "Time", "This takes about {v} minutes.", "You're done in {v} minutes."),
        Form("heat", "Heat", "The water should be at {v}.", "Have the water at {v}.", "c"),
    ),
}

# weight in kg | kind | home | food | length in cm | years
_ANIMALS = """
otter|9|mammal|rivers and coasts|fish|90|12
badger|11|mammal|woodland|earthworms|75|14
beaver|20|mammal|streams and ponds|bark|80|15
camel|500|mammal|deserts|thorny plants|300|40
cheetah|50|mammal|grasslands|gazelles|130|12
dolphin|200|mammal|warm seas|fish|250|45
elephant|5000|mammal|savannas|grass|600|65
fox|6|mammal|woods and fields|mice|70|5
giraffe|1000|mammal|savannas|leaves|450|25
hare|4|mammal|open fields|grass|60|7
hippo|1500|mammal|slow rivers|grass|400|45
kangaroo|60|mammal|dry plains|grass|150|20
koala|10|mammal|eucalyptus forests|leaves|75|15
lion|180|mammal|savannas|zebras|190|14
lynx|22|mammal|cold forests|hares|100|16
moose|450|mammal|northern forests|twigs|270|18
panda|100|mammal|bamboo forests|bamboo|160|24
seal|85|mammal|cold coasts|fish|170|30
sloth|5|mammal|rainforests|leaves|55|26
tiger|210|mammal|dense forests|deer|280|13
walrus|900|mammal|arctic ice|clams|320|35
wolf|40|mammal|forests and tundra|deer|140|8
zebra|350|mammal|savannas|grass|230|28
albatross|8|bird|open oceans|squid|120|50
crane|7|bird|wetlands|seeds|115|22
eagle|5|bird|mountains|rabbits|90|21
flamingo|3|bird|salt lakes|shrimp|125|33
heron|2|bird|lakes and marshes|fish|95|11
ostrich|110|bird|dry plains|plants|200|42
owl|1|bird|woodland|mice|40|10
penguin|30|bird|cold coasts|fish|110|20
swan|12|bird|lakes|water plants|150|19
crocodile|480|reptile|tropical rivers|fish|460|70
iguana|4|reptile|tropical forests|leaves|145|17
python|60|reptile|rainforests|rats|500|27
tortoise|25|reptile|dry scrubland|grass|50|100
"""
# summer in °C | country | water | fame | km² | million people
_CITIES = """
Paris|25|France|Seine|the Eiffel Tower|105|2
London|23|England|Thames|Big Ben|1570|9
Rome|31|Italy|Tiber|the Colosseum|1285|3
Vienna|27|Austria|Danube|classical music|415|2
Cairo|35|Egypt|Nile|the pyramids|3085|10
Lisbon|28|Portugal|Tagus|tiled houses|100|1
Prague|24|Czechia|Vltava|the old bridge|496|1
Dublin|20|Ireland|Liffey|old libraries|118|1
Oslo|22|Norway|Oslo Fjord|wooden ships|454|1
Stockholm|21|Sweden|Baltic Sea|its islands|188|1
Berlin|26|Germany|Spree|its museums|892|4
Warsaw|24|Poland|Vistula|its old town|517|2
Athens|33|Greece|Aegean Sea|the Acropolis|39|1
Madrid|32|Spain|Manzanares|its art galleries|604|3
Tokyo|30|Japan|Sumida|neon streets|2194|14
Seoul|29|South Korea|Han|royal palaces|605|9
Bangkok|34|Thailand|Chao Phraya|golden temples|1569|8
Sydney|26|Australia|Tasman Sea|the opera house|12368|5
Lima|26|Peru|Pacific Ocean|seafood|2672|10
Nairobi|27|Kenya|Nairobi River|safaris|696|4
Toronto|27|Canada|Lake Ontario|a tall tower|630|3
Chicago|28|the United States|Lake Michigan|tall buildings|606|3
Havana|31|Cuba|Caribbean Sea|old cars|728|2
Istanbul|29|Turkey|Bosphorus|grand bazaars|5343|16
Budapest|28|Hungary|Danube|thermal baths|525|2
Helsinki|21|Finland|Baltic Sea|saunas|715|1
"""
# weight in g | kind | colour | season | place | keep at °C
_FOODS = """
apple|180|fruit|red|autumn|Poland|2
banana|120|fruit|yellow|every month|Ecuador|13
orange|200|fruit|orange|winter|Spain|6
lemon|100|fruit|yellow|winter|Italy|10
mango|300|fruit|gold|summer|India|12
peach|150|fruit|pink|summer|Greece|1
pear|170|fruit|green|autumn|Belgium|1
plum|65|fruit|purple|summer|Serbia|3
kiwi|75|fruit|brown|winter|New Zealand|4
fig|50|fruit|purple|autumn|Turkey|1
coconut|680|fruit|brown|every month|Indonesia|14
melon|1500|fruit|green|summer|Morocco|8
avocado|220|fruit|dark green|spring|Mexico|7
carrot|60|root|orange|autumn|France|1
beet|110|root|dark red|autumn|Russia|2
radish|20|root|red|spring|Japan|3
potato|170|tuber|light brown|autumn|Peru|7
onion|150|bulb|golden|summer|Egypt|5
pumpkin|4000|fruit|orange|autumn|China|12
tomato|120|fruit|red|summer|Italy|15
cucumber|250|fruit|green|summer|Holland|11
pepper|160|fruit|red|summer|Hungary|9
"""
# first | ml of water | then | last | minutes | °C
_TASKS = """
make tea|warm the pot|250|add the leaves|pour it through a sieve|5|95
make coffee|grind the beans|200|fill the filter|stir the cup|4|93
cook rice|rinse the rice|400|put on the lid|fluff it with a fork|18|98
boil eggs|pick a small pan|600|lower the eggs in|cool them under the tap|9|99
cook pasta|salt the water|1000|stir it once|drain it well|11|97
bake bread|mix flour and yeast|320|knead the dough|let the loaf cool|45|35
wash a car|rinse off the dirt|9000|rub it with soap|dry it with a cloth|40|25
water a plant|feel the soil|300|pour slowly|empty the saucer|2|18
clean a window|wipe off the dust|500|spray the glass|polish it with paper|8|30
wash a sweater|close the buttons|5000|soak it with mild soap|lay it flat|30|28
make soup|chop the vegetables|1200|let it simmer|add some salt|35|90
make lemonade|squeeze the lemons|800|stir in sugar|serve it with ice|6|8
mop a floor|sweep the floor|4000|wring out the mop|let the floor dry|20|40
paint with watercolours|tape down the paper|150|wet the brush|let the sheet dry|60|20
dye a shirt|wet the shirt|3000|stir in the dye|rinse until clear|50|60
wash a dog|brush the coat|7000|rub in the shampoo|dry it with a towel|25|37
"""


def _table(kind: str, text: str) -> list[Topic]:
    rows = (line.split("|") for line in text.strip().splitlines())
    return [Topic(name, kind, tuple(values)) for name, *values in rows]


TOPICS: tuple[Topic, ...] = (
    *_table("animal", _ANIMALS),
    *_table("city", _CITIES),
    *_table("food", _FOODS),
    *_table("task", _TASKS),
)
BY_NAME = {topic.name: topic for topic in TOPICS}


@cache
def readers(kind: str) -> tuple[tuple[Form, re.Pattern[str]], ...]:
    """For each form of a kind the pattern that finds it said, in any of its three ways; the value is a group."""
    made = []
    for form in FORMS[kind]:
        ways = [f"- {form.label}: {{v}}", form.formal.removesuffix("."), form.casual.removesuffix(".")]
        # The value ends where the sentence goes on, ends, or the line does.
        ended = [re.escape(way).replace(r"\{v\}", r"([^\n.!?]+?)") + r"(?=[.!?\n]|\s*$)" for way in ways]
        made.append((form, re.compile("|".join(ended))))
    return tuple(made)
