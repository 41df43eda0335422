"""Stop words of several languages: left out of queries, but not out of the index.

The lists of other languages also serve to detect a text's language, so they contain no word that is also English.
"""

from __future__ import annotations

from functools import cache
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH: Final = _words("""
    a able about above according across actual actually add after afterwards again against ago ain all allow allows
    almost alone along already also although always am among amongst an and another any anybody anyhow anymore
    anyone anything anyway anyways anywhere apart appear are aren around as ask asked asking at away be became
    because become becomes becoming been before beforehand begin behind being below beside besides best better
    between beyond both bring brought but by call called came can cannot certain certainly come comes coming
    consider could couldn current currently d day definitely describe described did didn different discuss discussed
    do does doesn doing don done down during each either else elsewhere end enough especially etc even ever every
    everybody everyone everything everywhere exactly example examples except far few first follow following follows
    for former from further gave general get gets getting give given gives giving go goes going gone got gotten had
    hadn happen happened happening happens hardly has hasn have haven having he hence her here hers herself hey hi
    him himself his how however i if in inc indeed indicate inside instead into involve involved is isn it its
    itself just kind kinds knew know known knows last lately later latest least less let lets little ll look looked
    looking looks lot lots m made mainly make makes making many may maybe me mean means mention mentioned mentions
    merely might mightn mine more moreover most mostly much must mustn my myself name named namely near nearly
    necessary needn neither never nevertheless new next no nobody none nor not nothing now nowhere obviously of off
    often oh ok okay on once one ones only onto or other others otherwise ought our ours ourselves out outside over
    overall own part particular particularly past per perhaps place please possible possibly probably provide put
    quite rather re really recent recently regarding regardless regards related respectively right s said same saw
    say saying says second see seeing seem seemed seeming seems seen self several shall shan share shared she should
    shouldn show showed since so some somebody somehow someone something sometime sometimes somewhat somewhere soon
    sort specific still such sure t take taken takes taking talk talked tell tells than thank thanks that the their
    theirs them themselves then there thereby therefore these they thing things think this thorough thoroughly those
    though thought through throughout thus time times to today together told too took toward towards truly turn
    twice two type types under unless unlike until up upon us usually various ve very via was wasn way ways we well
    went were weren what whatever when whenever where whereas wherever whether which while who whoever whole whom
    whose why will with within without won would wouldn yes yet you your yours yourself yourselves
    """)

ABBREVIATED: Final = frozenset({"it", "us"})
"""Stop words that stand for something else in capitals."""

ASKABLE: Final = _words("""
    above below call called end example examples far first general inside kind kinds last latest name named names new
    next outside part past place right second show sort specific talk time times today together turn type types
    """)
"""The stop words that a query of nothing but stop words asks for: "who is on call" asks for `call`."""

BY_LANGUAGE: Final = {
    "german": _words("""
        aber alle allem allen aller alles als auch auf aus bei beim bis da damit dann das dass dein deine dem den
        denn der deren dessen dich dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem
        einen einer eines er es etwas euch euer für gegen gibt haben hatte hatten hier ich ihm ihn ihnen ihr ihre im
        ist ja jede jeder jedes jetzt kann kein keine können mein meine mich mir mit muss nach nicht nichts noch nur
        oder ohne schon sehr sein seine seit sich sie sind soll sondern über um und uns unser unter viel vom von vor
        wann warum weil welche welcher welches wenn wer werden wie wieder wir wird wo wohin womit wurde würde zum
        zur zwischen
        """),
    "turkish": _words("""
        acaba ama artık asla aslında ayrıca bana bazen bazı belki ben benden beni benim bir biri birkaç birçok biz
        bizim bu buna bunda bundan bunu bunun burada çok çünkü daha dahi de değil diye dolayı eğer fakat gibi göre
        hangi hatta hem henüz hep hepsi her herhangi için ile ilgili ise işte kadar karşın kez ki kim kime kimin mi
        mı mu mü nasıl ne neden nedir nerede nereye niçin niye o olan olarak oldu olduğu olsa on onlar onu onun oysa
        pek rağmen sadece sanki sen senin siz sizin şey şu şuna şunu tüm var ve veya ya yani yerine yok zaten
        """)
    - {"on"},
    "french": _words("""
        afin ai ainsi après au aucun aussi autre aux avait avec avoir beaucoup bien ces cet cette ceux chez comme
        comment dans de depuis des deux dont du elle elles en encore entre est et était être eux fait il ils je la
        le les leur leurs lui mais mes moins moi mon ne nos notre nous où par parce pas peu peut plus pour pourquoi
        quand que quel quelle quelles qui quoi sa sans ses si sont sous sur ta tes toi ton tous tout très tu un une
        vos votre vous
        """)
    - {"de", "me"},
    "spanish": _words("""
        al algo algunas algunos ante antes aquí como con contra cual cuando cuándo cuál cómo de del desde donde
        dónde durante el ella ellas ellos entre era es esa ese eso esta estaba estado estamos están estar este esto
        estos está fue fueron hace hacia han hasta hay la las le les lo los más mi mis mucho muy nada ni nos
        nosotros nuestra nuestro o otra otro para pero poco por porque qué que quien quién se sea ser si sin sobre
        son su sus también tan te tiene todo todos tu un una uno unos usted y ya yo
        """)
    - {"de", "son", "era"},
    "italian": _words("""
        agli ai al alla alle allo anche ancora avere aveva che chi ci come con cosa così cui da dal dalla degli dei
        del della delle dello di dopo dove due e è ed ella era erano essere fare fra gli ha hanno ho il io la le lei
        li lo loro lui ma mi mia mio molto nei nel nella nelle no noi non nostro o ogni per perché più poi prima
        quale quali quando quanto quella quello questa queste questo qui se sei si sono sua sul sulla suo tra tu
        tutti tutto un una uno voi
        """)
    - {"no", "per", "ma"},
    "portuguese": _words("""
        ao aos aquela aquele aqui as até com como da das de dela dele depois do dos e é ela elas ele eles em entre
        era essa esse esta está este eu foi foram há isso isto já lhe mais mas me mesmo meu minha muito na não nas
        nem no nos nós num numa o onde os ou para pela pelo por porque qual quando quem que se sem ser seu sua são
        só também tem tinha um uma você vos à às
        """)
    - {"as", "do", "no", "me", "era"},
    "dutch": _words("""
        aan als bij daar dan dat de der deze die dit door een en er ge geen haar heb hebben heeft hem het hier hij
        hoe hun iets ik is je kan kon kunnen maar meer men met mij mijn moet na naar niet niets nog nu om omdat ons
        ook op over te tegen toch toen tot uit uw van veel voor waar waarom wat werd wie wij wil worden zal ze zelf
        zich zij zijn zo zonder zou
        """)
    - {"die", "is", "over", "kan", "men", "met", "door", "wat", "de"},
}
"""The stop words of each language, by the name of its Snowball stemmer."""

# Stop words that other languages have as well: used for queries, not to detect the language.
_HOMOGRAPHS: Final = {"german": frozenset({"bin", "des", "die", "hat", "man", "war"}), "french": frozenset({"des"})}


# Russian, Greek and Arabic: their scripts differ, so that they need no language detection.
_BY_SCRIPT: Final = frozenset(
    (
        "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее мне было "
        "вот от меня еще нет о из ему теперь когда даже ну ли если уже или ни быть был него до вас нибудь "
        "опять уж вам ведь там потом себя ничего ей может они тут где есть надо ней для мы тебя их чем была "
        "сам чтоб без будто чего раз тоже себе под будет ж кто этот того потому этого какой ним здесь этом "
        "один мой тем чтобы нее сейчас были куда зачем всех при об это эта και το η ο οι τα την τον της του "
        "στο στη στην με για από που πως ποιος ποια τι είναι ήταν θα να δεν μου σου μας σας في من على إلى عن "
        "مع هذا هذه ذلك التي الذي ما ماذا هل كيف أين متى كان كانت هو هي هم أن إن لا لم لن قد"
    ).split()
)


@cache
def for_queries(language: str) -> frozenset[str]:
    """Return the stop words for a query in a language; English ones always, since people mix languages."""
    return ENGLISH | _BY_SCRIPT | BY_LANGUAGE.get(language, frozenset()) | _HOMOGRAPHS.get(language, frozenset())
