"""Synthetic memory contents of three kinds: navigation (states), dialogue (texts), inventory (states).

Successive states are similar, as in a real run: a walk continues from its last position, and an inventory
changes by one thing at a time. The seed determines all contents, and no content occurs twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from memory.benchmarking.errors import UnknownName, nearest
from memory.benchmarking.workloads.texts import WHAT, WHO, circumstances


def _words(lines: str) -> list[str]:
    return lines.split()


_STEPS = 40
"""Number of successive states of one walk or one inventory."""

_AREAS = {
    "harbour": ("crane", "pier", "lighthouse", "customs house", "fish market", "dry dock"),
    "old town": ("fountain", "bell tower", "bakery", "stone arch", "pharmacy", "tram stop"),
    "forest": ("fallen oak", "creek", "hunting stand", "clearing", "beehive", "charcoal kiln"),
    "warehouse": ("loading bay", "shelf row", "forklift", "conveyor", "cold room", "fire door"),
    "mine": ("lift shaft", "ore cart", "flooded tunnel", "ventilation fan", "crystal vein", "blast wall"),
    "mountain": ("cable car", "glacier", "scree slope", "summit cross", "shepherd's hut", "rope bridge"),
    "campus": ("library", "lecture hall", "bike rack", "canteen", "greenhouse", "observatory"),
    "desert": ("dune ridge", "dry well", "caravan track", "salt flat", "ruined wall", "acacia tree"),
    "hospital": ("reception", "ward corridor", "lift lobby", "laboratory", "ambulance bay", "chapel"),
    "farm": ("barn", "silo", "pig pen", "orchard", "irrigation ditch", "tractor shed"),
}
_OBSTACLES = (
    "locked gate", "crowd", "puddle", "parked van", "loose gravel", "stairs", "guard dog", "thick fog",
    "broken glass", "low branch", "ice patch", "scaffolding", "narrow gap", "cable on the floor",
)  # fmt: skip
_SURFACES = ("asphalt", "gravel", "grass", "mud", "sand", "tiles", "snow", "planks", "cobblestones")
_GOALS = ("deliver the parcel", "find the exit", "return to base", "follow the guide", "map the area",
          "meet the courier", "reach the charger", "escape the patrol", "collect samples")  # fmt: skip
_MOVES = ("walking", "running", "turning", "waiting", "climbing", "backing up", "crawling")


def _navigation(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        area = rng.choice(list(_AREAS))
        x, y, z = rng.uniform(-100, 100), rng.uniform(-100, 100), rng.uniform(0, 12)
        goal_x, goal_y = rng.uniform(-100, 100), rng.uniform(-100, 100)
        heading, battery = rng.uniform(0, 360), rng.uniform(30, 100)
        goal, landmark = rng.choice(_GOALS), rng.choice(_AREAS[area])
        for step in range(_STEPS):
            speed = rng.uniform(0, 3)
            heading = (heading + rng.gauss(0, 25)) % 360
            x += speed * math.cos(math.radians(heading))
            y += speed * math.sin(math.radians(heading))
            battery -= speed * 0.2
            if rng.random() < 0.1:
                area = rng.choice(list(_AREAS))
            yield {
                "area": area,
                "position": {"x": round(x, 2), "y": round(y, 2), "z": round(z, 2)},
                "heading": round(heading, 1),
                "speed": round(speed, 2),
                "surface": rng.choice(_SURFACES),
                "sees": rng.sample(_AREAS[area], rng.randint(1, 3)),
                "obstacles": rng.sample(_OBSTACLES, rng.choice((0, 0, 1, 1, 2))),
                "movement": rng.choice(_MOVES),
                "goal": {
                    "task": goal,
                    "at": landmark,
                    "distance": round(math.hypot(goal_x - x, goal_y - y), 1),
                },
                "battery": round(battery, 1),
                "step": step,
            }


_TURNS = (
    "{who} told me that {who2} {did} the {what} {why}.",
    "Did you hear? {who} {did} the {what} {when}.",
    "What do you think about the {what}? I saw it in {where} {when}.",
    "I'm not sure. {who} said the {what} is still in {where}.",
    "Could you ask {who} whether the {what} can wait until we are back from {where}?",
    "Sorry, I can't come {when}: {who} {did} my {what} and I have to fix it.",
    "That's {feeling}! I never expected {who} to care about a {what}.",
    "We talked about the {what} for an hour, and then {who} left for {where}.",
    "You promised to bring the {what}, and now it is at {where}.",
    "Honestly, I feel {feeling} about the {what}, {why}.",
    "My plan is to finish the {what} {when} and then help {who} with the {what2}.",
    "No, that was {who2}. {who} only {did} the {what2} {when}.",
    "If {who} agrees, let's move the {what} to {where}.",
    "Thanks for the {what}! {who} was {feeling} when it arrived in {where}.",
    "How much was it? I heard that the {what} went for {n} euros in {where}.",
    "Please remind me {when} that {who} needs the {what} {why}.",
    "I read {n} pages about the {what} on the way to {where}, it made me {feeling}.",
    "Let me check: the {what} and the {what2}, both for {who}, {when}. Right?",
)
_REPLIES = ("", "", "", "Oh well.", "I see.", "Wait,", "Good morning!", "To be fair,", "Yes.", "Hm, no.",
            "By the way:", "Listen,", "You won't believe it.", "Exactly!", "Maybe later.")  # fmt: skip
_FEELINGS = ("wonderful", "terrible", "relieved", "nervous", "proud", "jealous", "exhausted", "curious",
             "embarrassed", "furious", "hopeful", "bored")  # fmt: skip

_ASIDES = (
    "It reminds me of the {adjective} {noun} and that {noun2}.",
    "There was a {noun}, quite {adjective}, next to a {noun2}.",
    "Maybe we should {verb} the {noun} before somebody gets {adjective}.",
    "I dreamt of a {adjective} {noun} again.",
    "They {verb} and {verb2} all day, {adjective} as ever.",
    "Next time I'd rather {verb} a {noun} than look at another {noun2}.",
    "My {noun} is {adjective}, the {noun2} too.",
)
# Many words: the vectors of the dialogues must fill the whole space, as vectors of real dialogues do.
_NOUNS = _words("""
acorn airport album anchor ankle apron archive arrow attic autumn avocado badge balcony ballad bamboo
barrel basket battery beach bear beard bench bicycle birthday blanket blister border bottle bracelet
brick broom bucket butcher butterfly cabin cactus calendar camel camera canal candle canvas carpet
castle cathedral ceiling cellar cereal chapter cheese chimney cinema circus clarinet cliff cloud coach
coast coffee collar comet comma compass concert copper coral cottage cough cousin cradle cricket crown
curtain cushion dairy dam debate desert diary dinner diploma doctor dolphin donkey dragon drawer dream
drill drum duck eagle earring election elephant engine envelope essay evening exam fabric factory fairy
farmer fashion feather fence ferry fever fiddle finger flag flood flute forest fossil fountain fridge
frog furnace galaxy gallery garlic ghost giraffe glacier glove goat grammar grape guitar harvest hat
heart hedge helicopter herb hill holiday honey hook horse hospital hotel iceberg insect island ivory
jacket jam jazz jewel journal judge jungle kettle kidney kitchen kite knee ladder lake lamp language
laundry lawyer leaf lemon letter library lion lizard lottery magnet mango marble market mask meadow
medal melody microscope mill mirror monk moon moth mountain museum mushroom nail needle nephew nest
novel nurse oak ocean olive onion opera orchard orchestra oven owl oyster paint palace parade parrot
passport peach pearl pepper perfume phone pigeon pillow pirate planet plumber poem pond potato prison
puzzle queen rabbit radio rainbow recipe referee restaurant ribbon river robot rocket roof rug saddle
sailor salad satellite sausage scarf school scissors seed shadow shark sheep shoulder signature skeleton
snake soap soldier song spider spoon stadium staircase stamp station statue storm strawberry subway
suitcase swan sweater tailor tale tea telephone temple theatre thread thunder tiger tomato tongue tooth
tournament tower toy tractor trumpet tunnel turtle twin umbrella uncle uniform university valley vase
village vinegar violin virus visa volcano voyage wallet walnut waterfall wedding whale wheat window wine
winter wizard wolf wool zebra
""")
_ADJECTIVES = _words("""
ancient angry anxious bitter bright busy calm cheap clever cold cruel damp dark deep dirty dizzy early
elegant empty famous fierce fragile frozen generous gentle golden grey guilty healthy heavy honest
hollow humble icy invisible jealous lazy lonely loud lucky modern mysterious naked narrow noisy odd pale
patient polite poor private proud quiet rare rotten rude sharp shy silent sleepy slippery smooth sour
spicy square steep strange strict stubborn sudden sunny sweet tall tender thick tiny tired ugly violent
warm weak wealthy wet wild wise
""")
_VERBS = _words("""
argue bake bless borrow bury carve celebrate chase chew climb confess cook count cry dance decorate dig
divorce drown fold forgive fry hide hunt iron juggle kick kiss knit laugh marry melt pack paint pray
protest rescue rob scratch scream sew shave shout sing ski sneeze steal sweep swim tease translate vote
wash weave whisper wrestle
""")


def _dialogue(rng: random.Random) -> Iterator[str]:
    while True:
        (who, who2, speaker), (what, what2) = rng.sample(WHO, 3), rng.sample(WHAT, 2)
        turns = [
            turn.format(
                who=who,
                who2=who2,
                what=what,
                what2=what2,
                **circumstances(rng, 2, 2000),
                feeling=rng.choice(_FEELINGS),
                n=rng.randrange(2, 2000),
            )
            for turn in rng.sample(_TURNS, rng.choice((1, 1, 2)))
        ]
        (noun, noun2), (verb, verb2) = rng.sample(_NOUNS, 2), rng.sample(_VERBS, 2)
        aside = rng.choice(_ASIDES).format(
            noun=noun, noun2=noun2, verb=verb, verb2=verb2, adjective=rng.choice(_ADJECTIVES)
        )
        yield f"{speaker}: " + " ".join(part for part in (rng.choice(_REPLIES), *turns, aside) if part)


_MATERIALS = ("iron", "oak", "silver", "glass", "leather", "bone", "copper", "silk", "clay", "steel")
_THINGS = (
    "sword", "shield", "lantern", "rope", "flask", "map", "key", "arrow", "boots", "cloak", "ring",
    "helmet", "pickaxe", "bandage", "torch", "compass", "scroll", "bowl", "needle", "hook", "mirror",
    "chain", "whistle", "hammer", "tent", "net", "candle", "saw", "bell", "amulet",
)  # fmt: skip
_FOODS = ("bread", "apple", "dried fish", "honey", "cheese", "mushroom", "water", "stew", "berries", "salt")
_SHOPS = ("camp", "smithy", "market", "inn", "vault", "ship", "stable", "tower", "mill", "temple")
_OWNERS = ("scout", "smith", "healer", "trader", "miner", "cook", "hunter", "guard", "sailor", "scholar")


def _inventory(rng: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        owner, place, coins = rng.choice(_OWNERS), rng.choice(_SHOPS), rng.randrange(500)
        capacity = rng.choice((60, 100, 150))
        items = {_thing(rng): rng.randint(1, 9) for _ in range(rng.randint(3, 9))}
        for step in range(_STEPS):
            change = rng.choice(("took", "used", "sold", "bought"))
            if change in ("took", "bought") or len(items) < 3:
                what = _thing(rng)
                items[what] = items.get(what, 0) + rng.randint(1, 4)
            else:
                what = rng.choice(list(items))
                items.pop(what)
            coins = max(0, coins + {"sold": 15, "bought": -12}.get(change, 0) * rng.randint(1, 3))
            if rng.random() < 0.15:
                place = rng.choice(_SHOPS)
            yield {
                "owner": owner,
                "place": place,
                "items": [{"name": name, "count": count} for name, count in items.items()],
                "equipped": rng.sample(list(items), min(2, len(items))),
                "coins": coins,
                "load": {"weight": round(sum(items.values()) * 1.3, 1), "capacity": capacity},
                "last": {"change": change, "what": what},
                "step": step,
            }


def _thing(rng: random.Random) -> str:
    return rng.choice(_FOODS) if rng.random() < 0.3 else f"{rng.choice(_MATERIALS)} {rng.choice(_THINGS)}"


_MAKERS: dict[str, Callable[[random.Random], Iterator[Any]]] = {
    "navigation": _navigation,
    "dialogue": _dialogue,
    "inventory": _inventory,
}
KINDS = tuple(_MAKERS)


def contents_of(kind: str, count: int, seed: int = 0) -> list[Any]:
    """Return `count` different contents of one of KINDS."""
    if kind not in _MAKERS:
        raise UnknownName(f"{kind!r} is not a kind of data: {nearest(kind, KINDS)}")
    return list(islice(_distinct(_MAKERS[kind](random.Random(f"{kind} {seed}"))), count))


def mixed_contents(count: int, seed: int = 0, kinds: Sequence[str] = KINDS) -> list[Any]:
    """Return `count` different contents that alternate between the kinds."""
    of_each = -(-count // len(kinds))
    parts = [contents_of(kind, of_each, seed) for kind in kinds]
    return [content for group in zip(*parts, strict=True) for content in group][:count]


def _distinct(contents: Iterator[Any]) -> Iterator[Any]:
    seen = set()
    for content in contents:
        key = repr(content)
        if key not in seen:
            seen.add(key)
            yield content
