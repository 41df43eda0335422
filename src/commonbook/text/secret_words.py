"""Words about secrets in English and German: names of secrets, and the words that join a name to its value.

`commonbook.text.spoken_secrets` uses them. All words are in lower case.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- names of secrets


class Kind(Enum):
    """Kinds of secrets: a password may be any word, a code is mostly a number, a key is made by a machine."""

    PASSWORD = 1
    CODE = 2
    KEY = 3


# A bare "code" is too common: a code's name says what it opens. Of two that begin alike the longer one comes first.
NAMES: Final = {
    Kind.PASSWORD: r"pass ?phrases?|pass[ -]?words?|passcodes?|passwd|pwd|pw|pass(?![a-zäöü-])"
    r"|(?:seed|recovery|backup|secret|mnemonic|wallet) phrase",
    Kind.CODE: r"pin(?:-?code| (?:code|number|no\.?)|s)?|cvv2?|cvc2?|otp|security code|combination"
    r"|(?:verification|confirmation|one-?time|authentication|auth|login|2fa|mfa|sms|backup|recovery|unlock|entry|access"
    r"|door|gate|alarm|garage|keypad|lock|entrance) (?:code|pin)|one-?time pass(?:word|code)",
    Kind.KEY: r"(?:api|access|auth|secret|private|signing|encryption|account|master|client|licen[sc]e|webhook|service"
    r"|product|activation|recovery|wpa2?|network|security)[ -]?key"
    r"|(?:api|access|auth|bearer|refresh|session|bot|personal access|client) ?(?:token|secret)|token|secret",
}
GERMAN_NAMES: Final = {
    Kind.PASSWORD: r"passwort(?:e?s)?|passwörtern?|kennwort(?:e?s)?|kennwörtern?|losungswort|passphrase",
    Kind.CODE: r"pin-?nummer|geheimzahl|geheimnummer|prüfziffer|kartenprüfnummer"
    r"|(?:zugangs|sicherheits|bestätigungs|tür|alarm|zutritts|entsperr|verifizierungs|freischalt|einmal)-?code",
    Kind.KEY: r"(?:api|wlan|zugriffs|zugangs|geheim|lizenz|netzwerk|sicherheits)-?schlüssel"
    r"|(?:zugriffs|zugangs|api)-?token",
}

PARTS_OF_NAMES: Final = {
    "pass": (Kind.PASSWORD,), "pwd": (Kind.PASSWORD,), "pw": (Kind.PASSWORD,), "phrase": (Kind.PASSWORD,),
    "kennw": (Kind.PASSWORD,), "losungswort": (Kind.PASSWORD,), "pin": (Kind.CODE,), "cvv": (Kind.CODE,),
    "cvc": (Kind.CODE,), "otp": (Kind.CODE,), "code": (Kind.CODE,), "combination": (Kind.CODE,),
    "one-time pass": (Kind.CODE,), "one time pass": (Kind.CODE,), "geheim": (Kind.CODE,), "prüf": (Kind.CODE,),
    "key": (Kind.KEY,), "token": (Kind.KEY,), "secret": (Kind.KEY,), "schlüssel": (Kind.KEY,),
}  # fmt: skip
"""A part of each name, with the kinds whose names contain it: a search for a part is fast."""

# --- words around a name

JOINTS: Final = _words("""
    is are was were be equals becomes became reads remains 's be: is: are: was: is= it's that's been
    ist war sind lautet lauten heißt heisst wäre wird ist: lautet: heißt: bleibt sei
""")
"""Words between a name and its value, or between a value and its name: *is*."""

WEAK_JOINTS: Final = _words("to as with into auf in als mit zu")
"""Words that join a name only to a value that looks like a secret by itself: *to*, in *changed it to*."""

FILLERS: Final = _words("""
    now currently still actually just simply probably literally always set to changed updated reset be called likely
    again the word following this really only basically following: one so something like either
    jetzt nun aktuell derzeit einfach immer noch momentan seit heute das wort wie folgt also übrigens weiterhin
""")
"""Words that may stand between a joint and the value: *now*."""

OWNERS: Final = _words("""
    my the our your his her their its a an new old current wifi wi-fi email account login root admin database server
    router guest master vpn laptop phone default temporary for as of
    mein das unser dein ihr sein euer neues aktuelles als die meine unsere deine der wlan
""")
"""Words between a joint and the name behind a value: *is my wifi password*."""

# --- words that are no secrets


_NO_SECRET_ENGLISH: Final = _words("""
    a about above absent absolutely accepted active added after again all allowed almost already also alright always
    an and another any anything applied as at available awful bad based basically because been before being below
    better between blank both broken but by called cached case checked cheap clear common complex complicated
    correct crucial dead deprecated default different difficult disabled down due during each easy either else
    embarrassing empty encoded enough enabled essential every everything everywhere exactly expired explicit false
    fine first fixed for forever forgotten from full further generic given global going gone good great guessable
    half handled hard hashed here hidden horrible how identical ignored important impossible in inactive incorrect
    inside insecure internal invalid it its just kept known last later leaked left less like local locked logged
    long lost mandatory masked maybe mine missing more most much my necessary needed never new nearly no nobody none
    not nothing now null obvious off ok okay old older on once one only optional or other ours out outdated over
    part per perfect personal plain pending permanent predictable present private probably protected public quite
    random rather ready really recommended redacted refused rejected replaced required reset right rotated safe
    salted same saved secret secure sensitive sent separate set shared short shown similar simple slightly so some
    somebody someone something somewhere soon still stolen stored strange strong stronger supposed swapped sure
    taken temporary terrible than that the their them there these they this those through tied to together too tough
    treated tricky true trivial two typically unavailable unchanged undefined unique unknown unnecessary unprotected
    unsafe unset until up upper-case uppercase lowercase useless usually valid very visible vulnerable wanted was
    weak weaker were what when where which while whoever why wide with within without working worse worth written
    wrong yes your yours nil n/a tbd todo string text number integer boolean example placeholder password passwort
    token key value username user login email admin-only printed displayed asked typed entered mentioned attached
    below: above: follows above. here: there: somewhere: everyone bytes str int bool float object char varchar dict
    array be changed must should cannot can't used see ask use least minimum maximum contact chapter page section
    step check refer please
""")
_NO_SECRET_GERMAN: Final = _words("""
    der die das ein eine im zu sehr mehr gleich dasselbe immer nie nicht nur falsch richtig korrekt ungültig
    gültig erforderlich notwendig nötig pflicht unsicher sicher schwach stark kurz lang neu alt geheim privat
    öffentlich leicht schwer einfach schwierig abgelaufen leer verschieden einzigartig wichtig meins gut schlecht
    hier dort temporär vergessen verloren bekannt unbekannt geändert gespeichert verschlüsselt gesetzt gesperrt
    komplex persönlich dem den des eines einer einem einen am beim vom zum zur auf bei mit ohne von vor nach aus
    für über unter bis seit und oder aber auch noch schon wieder ganz ziemlich etwas wirklich leider bereits bald
    gerade wohl vielleicht derzeit jetzt mein dein sein ihr unser euer meine deine seine ihre unsere selbe
    derselbe dieselbe dieses diese dieser jenes wurde worden werden wird war wäre ist muss soll sollte darf kann
    nirgends irgendwo überall niemandem jedem allen aktuell zurückgesetzt abgelehnt akzeptiert aktiv inaktiv
    deaktiviert aktiviert gehasht zufällig eindeutig anders uralt kompliziert gestohlen gelöscht besser stärker
    länger kürzer sicherer nein ja geheimsache vertraulich
""")
NO_SECRETS: Final = _NO_SECRET_ENGLISH | _NO_SECRET_GERMAN

PREDICATE_ENDING: Final = r"(?:ed|ing|ly|able|ible|less|ful|ous|ive|ant|ent|ary|ory|ical|onal|ier|iest|ized|ised)$"
GERMAN_PREDICATE_ENDING: Final = r"(?:lich|ig|bar|sam|los|haft|t|en|isch|voll|lang|end|er|es|e)$"
"""Endings of words that say what a password is like, not what it is."""

COMPOUNDS: Final = _words("""
    manager managers policy policies reset resets field fields hash hashes hashing generator generators protection
    protected prompt prompts strength length requirement requirements rule rules change changes dialog page screen
    input form box recovery rotation expiry expiration file files store stores vault vaults database list lists hint
    hints authentication auth login checker cracking attack attacks sharing spraying stuffing storage safe book
    entry column parameter variable option setting settings mode type count limit limits budget ring manager,
    managers, managers. manager. managers: usage economy bucket stream embedding embeddings refresh validation
    verification header headers
""")
"""Words after a name by which it is the name of something else: *password manager*."""

UNITS: Final = _words("""
    characters character chars char digits digit letters letter bits bit bytes byte symbols words word days day
    hours hour minutes minute times time years year users user attempts attempt tries rounds iterations months month
    weeks week percent zeichen stellen ziffern buchstaben wörter tage stunden minuten mal jahre versuche stellig
""")
"""Words after a number by which it counts something."""

TECHNICAL: Final = (
    r"(?i)^(?:v?\d+(?:\.\d+)+[a-z]?|\d{1,4}(?:st|nd|rd|th|s|x|k|m|h|d|ms|gb|mb|kb|bit|bits|chars?|days?|min|er|e)?|md[45]"
    r"|sha-?\d+|sha\d-\d+|hmac.*|bcrypt\d*|argon2\w*|scrypt|pbkdf2\w*|oauth2?|oauth2\.\d|oidc|saml2?|utf-?\d+\w*|base\d+"
    r"|2fa|mfa|u2f|fido2|ipv[46]|http[2s]?|tls\d.*|ssl\d.*|wpa\d\w*|x\.?509|pkcs\d+|ntlmv?\d|aes-?\d*|rsa-?\d*|ed25519"
    r"|k8s|s3|ec2|r2|h2|b2b|i18n|l10n|a11y|es\d+|python\d.*|php\d|java\d+|html5|css3|mp[34]|office ?365|[mo]365|win\d+"
    r"|windows\d*|1password\w*|keepass\w*|lastpass|bitwarden|wi-?fi|windows1[01]|ios\d+|android\d+|iphone\d*|ps[45]|q[1-4]"
    r"|rfc-?\d+|iso-?\d+.*|cve-.*|h264|covid-?19|g7|g20|c3po|r2d2|\d{4}-\d{1,2}(?:-\d{1,2})?|\d{1,2}[:.]\d{2}(?:[:.]\d{2})?"
    r"|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d+[-–]\d+|\d+%|[$€£]\d.*|gpt-?\d.*|claude-?\d.*|ubuntu\d*|debian\d*|db\d+|v\d+)$"
)
"""Values with digits among letters that name a technology, a version, a date or a quantity."""
