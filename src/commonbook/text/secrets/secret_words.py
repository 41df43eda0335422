"""Words about secrets in twelve languages: names of secrets, and the words that join a name to its value.

`commonbook.text.secrets.spoken_secrets` uses them. All words are in lower case.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Language(NamedTuple):
    """How a language names secrets (patterns), and how it says what one is (words)."""

    passwords: str
    """Names of what may be any word: passwords."""
    codes: str
    """Names of what is mostly a number: PINs and codes."""
    keys: str
    """Names of what is made by a machine: keys and tokens."""
    joints: str
    """Words between a name and its value, or between a value and its name: *is*."""
    weak_joints: str = ""
    """Words that join a name only to a value that looks like a secret by itself: *to*, in *changed it to*."""
    fillers: str = ""
    """Words that may stand between a joint and the value: *now*."""
    closers: str = ""
    """Words after the value in languages whose verb comes last."""
    owners: str = ""
    """Words between a joint and the name behind a value: *is my wifi password*."""
    spaced: bool = True
    """Whether blanks separate words."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The names of codes that open something: a bare "code" is too common.
LANGUAGES: Final[dict[str, Language]] = {
    # Names that several languages share. Their joints are those of all languages in Latin letters.
    "latin": Language(
        passwords=r"passwords?|passwd|pwd|pw|pass(?![a-zäöü-])",
        codes=r"pin(?:-?code)?|cvv2?|cvc2?|otp",
        keys=r"api[ -]?key|token",
        joints="",
    ),
    "en": Language(
        passwords=r"pass words?|pass-words?|passcodes?|pass ?phrases?"
        r"|(?:seed|recovery|backup|secret|mnemonic|wallet) phrase",
        codes=r"pin (?:code|number|no\.?)|pins|security code|(?:verification|confirmation|one-?time"
        r"|authentication|auth|login|2fa|mfa|sms|backup|recovery|unlock|entry|access|door|gate|alarm|garage|keypad|lock"
        r"|entrance) (?:code|pin)|one-?time pass(?:word|code)|combination",
        keys=r"(?:api|access|auth|secret|private|signing|encryption|account|master|client|licen[sc]e|webhook|service"
        r"|product|activation|recovery|wpa2?|network|security)[ -]?key|(?:api|access|auth|bearer|refresh|session|bot"
        r"|personal access|client) ?(?:token|secret)|token|secret",
        joints="is are was were be equals becomes became reads remains 's be: is: are: was: is= it's that's been",
        weak_joints="to as with into",
        fillers="now currently still actually just simply probably literally always set to changed updated reset be"
        " called likely again the word following this really only basically following: one so something like either",
        owners="my the our your his her their its a an new old current wifi wi-fi email account login root admin"
        " database server router guest master vpn laptop phone default temporary for as of",
    ),
    "es": Language(
        passwords=r"contrase(?:ñ|n)as?|claves?(?: (?:de (?:acceso|wifi|la wifi|red|la red)|secreta|del wifi))?",
        codes=r"c[oó]digo (?:de (?:seguridad|verificaci[oó]n|acceso|desbloqueo|la puerta|la alarma|entrada)"
        r"|pin|secreto)|n[uú]mero secreto",
        keys=r"claves? (?:de (?:la )?api|api|privada)|token de acceso",
        joints="es era son será sea ser está: es: queda quedó",
        weak_joints="a por con como en",
        fillers="ahora actualmente siempre simplemente solo sólo todavía la palabra esta ésta siguiente",
        owners="mi la tu su nuestra nuestro el del de nueva contraseña wifi como una un",
    ),
    "fr": Language(
        passwords=r"mots? de passe|mdp|phrase de passe",
        codes=r"code (?:pin|secret|de s[ée]curit[ée]|de v[ée]rification|de confirmation|d['’]acc[èe]s"
        r"|de (?:la |l['’])?(?:porte|alarme|entr[ée]e|carte|portail)|confidentiel|de d[ée]verrouillage)|digicode",
        keys=r"cl[ée]s? (?:d['’]api|api|secr[èe]te|d['’]acc[èe]s|priv[ée]e|wifi|wpa)|jeton(?: d['’]acc[èe]s)?|token",
        joints="est était sont sera c'est c’est est: devient reste soit",
        weak_joints="en à par pour avec",
        fillers="maintenant désormais actuellement toujours juste simplement encore le mot suivant",
        owners="mon le la ma votre notre ton son nouveau ancien comme un du de wifi pour",
    ),
    "pt": Language(
        passwords=r"senhas?|palavras?[ -]passe|palavra[ -]chave",
        codes=r"c[oó]digo (?:de (?:seguran[çc]a|verifica[çc][ãa]o|acesso|desbloqueio|confirma[çc][ãa]o)"
        r"|d[ao] (?:porta|alarme|port[ãa]o|cofre)|pin|secreto)",
        keys=r"chaves? (?:d[ae] api|api|secreta|de acesso|privada|do wifi|de seguran[çc]a)|token(?: de acesso)?",
        joints="é era são será seja fica ficou é:",
        weak_joints="para com como por a",
        fillers="agora atualmente sempre simplesmente só apenas ainda sendo a palavra seguinte",
        owners="minha a o meu tua sua nossa nova da do de wifi como uma um",
    ),
    "de": Language(
        passwords=r"passwort|passwörter|kennwort|kennwörter|losungswort",
        codes=r"pin-?nummer|geheimzahl|prüfziffer|kartenprüfnummer"
        r"|(?:zugangs|sicherheits|bestätigungs|tür|alarm|zutritts|entsperr|verifizierungs|freischalt)-?code|geheimnummer",
        keys=r"(?:api|wlan|zugriffs|geheim|lizenz|netzwerk|sicherheits)-?schlüssel|(?:zugriffs|zugangs|api)-?token|token",
        joints="ist war sind lautet lauten heißt heisst wäre wird ist: lautet: heißt: bleibt sei",
        weak_joints="auf in als mit zu",
        fillers="jetzt nun aktuell derzeit einfach immer noch momentan seit heute das wort wie folgt",
        owners="mein das unser dein ihr sein euer neues aktuelles als die meine der wlan",
    ),
    "ru": Language(
        passwords=r"парол(?:ь|я|ю|ем|и|ей|ям|ями)|кодовое слово|кодовая фраза|секретное слово",
        codes=r"пин(?:-?код)?(?:а|ом|у)?|код (?:доступа|подтверждения|безопасности|от (?:домофона|двери|подъезда"
        r"|сейфа|сигнализации)|домофона|двери|разблокировки)",
        keys=r"(?:api-?)?ключ(?: (?:api|доступа|апи|шифрования))?|(?:api-?)?токен(?: доступа)?|секрет",
        joints="это - – — был была будет такой: вот: стал теперь: есть является",
        weak_joints="на с под",
        fillers="теперь сейчас такой просто всегда это следующий — – - слово вот",
        owners="мой наш твой ваш новый это — – - как от в качестве",
    ),
    "ar": Language(
        passwords=r"كلم[ةه] (?:ال)?(?:مرور|سر)|كلمات المرور|كلم[ةه] سر|كلم[ةه] مرور|(?:ال)?باس ?و+رد|عبار[ةه] المرور",
        codes=r"(?:ال)?رقم (?:ال)?سري|رقم[يك]? السري|رمز (?:ال)?(?:دخول|مرور|تحقق|أمان|امان|سري|باب|قفل|حماية|تأكيد)"
        r"|(?:ال)?رمز السري|كود (?:ال)?(?:تحقق|تفعيل|دخول|باب)|(?:ال)?بن كود",
        keys=r"مفتاح (?:ال)?(?:api|واجهة|وصول|سري)[^\s]{0,12}|(?:ال)?توكن|رمز الوصول",
        joints="هي هو كانت كان هي: هو: تكون يكون أصبحت أصبح صارت صار تساوي",
        weak_joints="إلى الى ب",
        fillers="الآن الان حاليا حالياً الجديدة دائما هي هو ببساطة",
        owners="هي هو كلمة الخاصة ك كـ",
    ),
    "hi": Language(
        passwords=r"पासवर्ड|पास वर्ड|कूटशब्द|पासफ़?्?रेज़?|पासकोड|पासफ्रेज",
        codes=r"पिन(?: (?:कोड|नंबर))?|ओटीपी|ओ\.?टी\.?पी\.?|(?:गुप्त|सुरक्षा|सत्यापन|एक्सेस|दरवाज़े का|दरवाजे का|वेरिफिकेशन) कोड"
        r"|सीवीवी",
        keys=r"(?:एपीआई|api) (?:कुंजी|की)|टोकन|गुप्त कुंजी",
        joints="है था थी हैं होगा है: हैः था: = रहेगा",
        weak_joints="को",
        fillers="अब अभी सिर्फ केवल हमेशा यह ये है",
        closers="है था थी हैं होगा रखा कर किया रखो रखें हो",
        owners="मेरा हमारा आपका उसका का मेरे है नया",
    ),
    "bn": Language(
        passwords=r"পাসওয়ার্ড(?:টি|টা)?|পাসওয়ার্ড(?:টি|টা)?|পাস ওয়ার্ড|পাসফ্রেজ|পাসকোড",
        codes=r"পিন(?: ?(?:কোড|নম্বর|নাম্বার))?(?:টি|টা)?|ওটিপি(?:টি)?|(?:গোপন|নিরাপত্তা|যাচাইকরণ|ভেরিফিকেশন|দরজার) (?:কোড|পিন)"
        r"|সিভিভি",
        keys=r"(?:এপিআই|api) (?:কী|কি|চাবি)|টোকেন",
        joints="হল হলো হলঃ হচ্ছে ছিল হয় হয় হবে হল: হলো: =",
        weak_joints="করে",
        fillers="এখন শুধু সবসময় এটা এই",
        closers="হয় হবে ছিল করা করেছি রাখা দিয়ে দিয়ে",
        owners="আমার আমাদের আপনার তার হল হলো নতুন",
    ),
    "ur": Language(
        passwords=r"پاس ?ورڈ|پاس ?کوڈ|پاس ?فریز|خفیہ لفظ",
        codes=r"پن(?: (?:کوڈ|نمبر))|پن|او ?ٹی ?پی|(?:خفیہ|سیکیورٹی|سیکورٹی|تصدیقی|دروازے کا) (?:کوڈ|نمبر|پن)",
        keys=r"(?:اے پی آئی|api) (?:کی|کلید)|ٹوکن",
        joints="ہے تھا تھی ہیں ہوگا ہے: تھا: =",
        weak_joints="کو",
        fillers="اب ابھی صرف ہمیشہ یہ ہے",
        closers="ہے تھا تھی ہیں ہوگا رکھا کر کیا رکھیں ہو",
        owners="میرا ہمارا آپ اس کا میرے ہے نیا",
    ),
    "zh": Language(
        passwords="密码|密碼|口令|暗号|通行码",
        codes="验证码|驗證碼|安全码|安全碼|校验码|动态码|门禁码|开门码|门锁码|pin码|pin碼",
        keys="密钥|密鑰|令牌|金鑰|api ?key|token",
        joints="是 为 為 成 了 叫 到 : ： = ＝ 「 “ ‘ 『 \" ' 就是 作",
        spaced=False,
    ),
    "ja": Language(
        passwords="パスワード|合言葉|パスフレーズ|パスコード",
        codes="暗証番号|認証コード|確認コード|ピンコード|pinコード|セキュリティコード|ワンタイムパスワード|解除コード|暗証コード",
        keys="apiキー|アクセスキー|トークン|秘密鍵|シークレットキー|アクセストークン",
        joints="は が を ： : = ＝ 「 『 “ \" ' に",
        spaced=False,
    ),
}

_LATIN: Final = ("en", "es", "fr", "pt", "de")


def _shared(field: str) -> str:
    return " ".join(getattr(LANGUAGES[name], field) for name in _LATIN)


LANGUAGES["latin"] = LANGUAGES["latin"]._replace(
    joints=_shared("joints"),
    weak_joints=_shared("weak_joints"),
    fillers=_shared("fillers"),
    owners=_shared("owners"),
)

_PARTS: Final = {
    "pass": "latin_p en_p", "passe": "fr_p", "passwort": "de_p",
    "passwörter": "de_p", "pwd": "latin_p", "pw": "latin_p", "phrase": "en_p",
    "pin": "latin_c en_c fr_c es_c pt_c de_c", "cvv": "latin_c", "cvc": "latin_c", "otp": "latin_c",
    "code": "en_c fr_c de_c", "combination": "en_c", "one-time pass": "en_c", "one time pass": "en_c",
    "key": "latin_k en_k", "token": "latin_k en_k es_k pt_k de_k", "secret": "en_k fr_c es_c", "contrase": "es_p",
    "clave": "es_p es_k", "código": "es_c pt_c", "codigo": "es_c pt_c", "mdp": "fr_p", "clé": "fr_k", "cle": "fr_k",
    "jeton": "fr_k", "senha": "pt_p", "palavra": "pt_p", "chave": "pt_k", "kennw": "de_p", "losungswort": "de_p",
    "geheim": "de_c", "prüf": "de_c", "schlüssel": "de_k", "парол": "ru_p", "кодов": "ru_p", "секретн": "ru_p",
    "пин": "ru_c", "код ": "ru_c", "ключ": "ru_k", "токен": "ru_k", "كلم": "ar_p", "باس": "ar_p", "عبار": "ar_p",
    "رقم": "ar_c", "رمز": "ar_c ar_k", "كود": "ar_c", "مفتاح": "ar_k", "توكن": "ar_k", "पास": "hi_p", "कूट": "hi_p",
    "पिन": "hi_c", "कोड": "hi_c", "टीपी": "hi_c", "सीवीवी": "hi_c", "कुंजी": "hi_k", "टोकन": "hi_k", "পাস": "bn_p",
    "পিন": "bn_c", "কোড": "bn_c", "টিপি": "bn_c", "সিভিভি": "bn_c", "এপিআই": "bn_k", "টোকেন": "bn_k", "پاس": "ur_p",
    "خفیہ": "ur_p ur_c", "پن": "ur_c", "ٹی": "ur_c", "کوڈ": "ur_c", "ٹوکن": "ur_k", "کلید": "ur_k", "密": "zh_p zh_k",
    "口令": "zh_p", "暗号": "zh_p", "通行码": "zh_p", "码": "zh_c", "碼": "zh_c", "令牌": "zh_k", "金鑰": "zh_k",
    "パス": "ja_p ja_c", "合言葉": "ja_p", "暗証": "ja_c", "コード": "ja_c", "キー": "ja_k", "トークン": "ja_k",
    "秘密鍵": "ja_k",
}  # fmt: skip
_WITH_LEAD: Final = frozenset({"en_c", "en_k", "fr_p", "fr_c", "es_c", "pt_c", "de_c", "de_k", "ar_c", "hi_c", "hi_k"})
_WITH_LEAD_TOO: Final = frozenset({"bn_c", "ur_c", "ur_k", "ru_k", "ru_p", "zh_c", "zh_k", "ja_c", "ja_k"})


class NameSource(NamedTuple):
    """The names of a language and a kind; `lead` says that other words of a name may stand before its part."""

    language: str
    kind: str
    lead: bool


def _source(part: str, source: str) -> NameSource:
    language, _, kind = source.partition("_")
    return NameSource(language, kind, source in _WITH_LEAD | _WITH_LEAD_TOO or part == "phrase")


NAME_PARTS: Final = {part: tuple(_source(part, one) for one in sources.split()) for part, sources in _PARTS.items()}
"""A part of each name, with the languages and kinds whose names contain it: a search for a part is fast."""

PREPOSITIONS: Final = _words("""
    для от в на с у к по из за о пользователя сервера аккаунта في من على مع عن إلى للمستخدم المستخدم حساب خادم
""")
"""Words after which a value is not the secret, but what the secret belongs to."""

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
_NO_SECRET_OTHERS: Final = _words("""
    la el los las lo un una en de del muy más mas demasiado misma mismo siempre nunca no sí si solo correcta
    incorrecta correcto incorrecto obligatoria obligatorio segura seguro insegura débil debil fuerte corta corto
    larga largo válida valida inválida nueva nuevo vieja antigua necesaria secreta privada pública fácil difícil
    igual diferente única mía tuya suya importante simple compleja mala buena esencial vacía vacia aquí ahí allí
    temporal personal distinta robusta le les des du dans trop très tres plus moins même meme toujours jamais
    obligatoire correct incorrect incorrecte valide invalide faible fort sûr sur sécurisé court long nouveau ancien
    secret privé public facile difficile requis nécessaire expiré vide identique différent unique important mien bon
    mauvais ici là temporaire oublié perdu sensible o os as um uma na nos muito mais mesma mesmo sempre não sim só
    correta incorreta correto obrigatória obrigatório fraca forte curta longa nova antiga necessária minha sua
    simples ruim boa essencial vazia aqui ali temporária pessoal sensível der die das ein eine im in zu sehr mehr
    gleich dasselbe immer nie nicht nur falsch richtig korrekt ungültig gültig erforderlich notwendig nötig pflicht
    unsicher sicher schwach stark kurz lang neu alt geheim privat öffentlich leicht schwer einfach schwierig
    abgelaufen leer verschieden einzigartig wichtig meins gut schlecht hier dort temporär vergessen verloren bekannt
    unbekannt geändert gespeichert verschlüsselt gesetzt gesperrt komplex optional persönlich не он она оно это нет
    да
""")
NO_SECRETS: Final = _NO_SECRET_ENGLISH | _NO_SECRET_OTHERS

PREDICATE_ENDINGS: Final = {
    "en": r"(?:ed|ing|ly|able|ible|less|ful|ous|ive|ant|ent|ary|ory|ical|onal|ier|iest|ized|ised)$",
    "es": r"(?:[aieí]d[oa]s?|bles?|iv[oa]s?|[aeo]ri[oa]s?|entes?|antes?|mente|ct[oa]s?|[aei]ndo|ic[oa]s?|al)$",
    "pt": r"(?:[aieí]d[oa]s?|v[ée]l|veis|iv[oa]s?|[áaó]ri[oa]s?|entes?|antes?|mente|[aei]ndo|ret[oa]|ic[oa]s?|al)$",
    "fr": r"(?:ée?s?|ie?s?|ue?s?|ables?|ibles?|oires?|aires?|eux|euses?|ifs?|ives?|ents?|ants?|ects?|ique|elle|al)$",
    "de": r"(?:lich|ig|bar|sam|los|haft|t|en|isch|voll|lang|end|er|es|e)$",
}
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
    weeks week percent caracteres carácter dígitos digitos letras símbolos palabras días dias horas minutos veces
    años intentos caractères lettres chiffres symboles mots jours heures fois ans essais tentatives dígito anos
    vezes tentativas zeichen stellen ziffern buchstaben wörter tage stunden minuten mal jahre versuche stellig
    символов символа символ знаков цифр цифры букв слов дней часов минут раз лет года попыток أحرف حرف حرفا أرقام
    رقم خانات رموز يوم أيام ساعة دقائق مرة مرات سنوات अक्षर अक्षरों अंक अंकों वर्ण शब्द दिन दिनों घंटे मिनट बार साल
    অক্ষর অক্ষরের অঙ্ক অঙ্কের সংখ্যা সংখ্যার দিন দিনের ঘণ্টা মিনিট বার বছর ডিজিট ডিজিটের حروف ہندسے ہندسوں دن گھنٹے
    منٹ بار سال
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
