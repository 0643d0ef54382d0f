"""Words for sentences of synthetic conversations: who did what, where, when and why."""

from __future__ import annotations

import random


def _words(lines: str) -> list[str]:
    return lines.replace("\n", "|").split("|")


WHO = _words("""Marta|Jonas|Priya|Kenji|Amara|Luca|Sofia|Tariq|Ingrid|Diego|Mei|Oleg|Fatima|Noah
the client|the landlord|my sister|our supplier|the new intern|the dentist|the night guard
a neighbour|the project manager|the choir leader|the mechanic|the accountant""")
DID = _words("""agreed to repair|asked me about|complained about|wants to sell|forgot|ordered
painted|returned|postponed|praised|lost|photographed|borrowed|insured|measured|cancelled
delivered|explained|inspected|compared""")
WHAT = _words("""wooden canoe|quarterly budget|espresso machine|piano lesson|database migration
rose garden|broken elevator|train ticket|wedding cake|tax return|solar panel|hiking map
chess tournament|vaccination card|telescope|leather jacket|lentil soup|fire alarm|rental contract
login page|violin concert|garage door|passport photo|research paper|bicycle brake|greenhouse
loyalty program|shipping label|birthday speech|water filter""")
WHERE = _words("""Lisbon|the harbour office|the third floor|Nairobi|the old library|Kyoto|Toronto
the warehouse|the north entrance|the village hall|the staging server|Oslo|the airport lounge
the attic|the clinic|Buenos Aires|the river camp|the school yard|the server room|Prague""")
WHEN = _words("""before sunrise|last Thursday|in early March|after lunch|on the first day of snow
at 17:40|during the strike|two weeks ago|right after the audit|on Sunday evening|at the end of term
in the summer of 2019|between two meetings|the day the power failed""")
WHY = _words("""because the price had doubled|since nobody answered the phone|as the deadline moved
to surprise the children|although the doctor advised against it|so that the insurance would pay
in spite of the heavy rain|because the old one leaked|after reading a bad review
to save about {n} euros|since room {n} was already taken|and paid {n} dollars in cash
which took {n} minutes longer than planned|because order {n} never arrived""")


def circumstances(rng: random.Random, least: int, most: int) -> dict[str, str]:
    """Return random words for a template: what was done, where, when and why.

    `least` and `most` bound the number that some reasons contain; `most` itself is excluded.
    """
    return {
        "did": rng.choice(DID),
        "where": rng.choice(WHERE),
        "when": rng.choice(WHEN),
        "why": rng.choice(WHY).format(n=rng.randrange(least, most)),
    }
