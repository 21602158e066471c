"""The English words that the reference models know, by kind, so that their prose reads as prose."""

from __future__ import annotations

__all__ = ["ADJECTIVES", "ADVERBS", "NAMES", "NOUNS", "OTHERS", "PLACES", "VERBS", "WORDS"]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _listed(
    """
    time year people way day man thing woman life child world school state family student group country problem
    hand part place case week company system program question work government number night point home water room
    mother area money story fact month lot right study book eye job word business issue side kind head house
    service friend father power hour game line end member law car city community name president team minute idea
    body information back parent face others level office door health person art war history party result change
    morning reason research girl guy moment air teacher force education sea river mountain forest garden bridge
    ship island harbour storm wind rain snow sun moon star light shadow fire stone road path field tree leaf
    flower bird fish horse dog cat boat train wheel tower wall window table chair lamp clock mirror letter paper
    pen song music dance voice silence dream memory secret journey village market baker farmer sailor captain
    doctor king queen castle kingdom winter summer spring autumn evening bread apple orange honey coffee tea
    salt sugar glass iron gold silver copper engine machine signal circuit screen key lock map compass anchor
    rope sail wave shore cloud sky valley
    """
)
VERBS = _listed(
    """
    asked began called came changed closed crossed danced drew drifted dropped fell felt filled followed found
    gave grew heard held helped hid kept knew laughed learned led left lifted listened lived looked lost loved
    made met moved needed opened painted passed picked played pulled pushed ran reached remembered rested
    returned rose said sang saw seemed sent set shone showed slept smiled spoke stayed stood stopped sailed
    talked taught thought told took touched travelled turned used waited walked wanted watched went whispered
    wondered worked wrote built
    """
)
ADJECTIVES = _listed(
    """
    ancient bitter blue bold brave bright broad busy calm careful clean clear clever cold cool curious dark deep
    distant dry early easy empty fair famous fine fresh full gentle good grand great green happy heavy high
    hollow honest hungry kind large late little lonely long loud lucky narrow new noble old open pale patient
    plain proud quick quiet rare red rich rough round sad safe sharp shy silent simple slow small smooth soft
    strange strong sudden sweet tall thin tiny tired true warm weary white whole wide wild wise wooden young
    yellow
    """
)
ADVERBS = _listed(
    """
    again almost alone already always away gently hardly here indeed later never often once only quickly quietly
    sadly slowly softly somewhere soon still suddenly then there together tomorrow twice yesterday
    """
)
PLACES = _listed(
    """
    above across after against along among around before behind below beside beyond by near over past through
    toward under upon within
    """
)
OTHERS = _listed(
    """
    a about all an and any are as at be because been both but can cannot could did do does down each every few
    first for from had has have he her him his how I if in into is it its just last like many may me more most
    much must my next no none not now of off on one or other our out own same she should so some such than that
    the their them these they this those three two up us very was we were what when where which while who why
    will with without would yes yet you your answer help sorry please thank request code result unknown capital
    number count
    """
)
NAMES = _listed(
    """
    Paris Berlin Rome Madrid Tokyo Oslo London Vienna Cairo Lima Lisbon Athens Warsaw Stockholm Beijing France Germany
    Italy Spain Japan Norway England Austria Egypt Peru Portugal Greece Poland Sweden China
    """
)
"""Names that the models know, and that they never say by chance."""
WORDS = tuple(dict.fromkeys((*NOUNS, *VERBS, *ADJECTIVES, *ADVERBS, *PLACES, *OTHERS)))
"""Every word once, in a fixed order: token ids depend on it."""
