"""Recognises descriptions that say of no skill in particular what it does."""

from __future__ import annotations

from skillhouse.floor.regex import regex
from skillhouse.retrieval.tokens import STOP_WORDS, words

STUB_FACTOR = 0.3
"""What the score and the confidence of a skill with such a description are multiplied by."""
CHARS_MAX = 240
"""Longer descriptions say something."""
_GENERIC_LEAST = 2
"""Generic words of a stub: `Merges PDFs` of `pdf-merge` only repeats the name, and says what it
does."""
_ENDINGS = ("ing", "ed", "es", "s", "")

_GENERIC = frozenset(
    "ability able about accomplish accordingly activate activity add advanced agent ai all always "
    "another any anyone anything anytime appropriate around assist assistance assistant automatic "
    "automatically available awesome basic best better call can capabilit capability capable "
    "case certain come comprehensive concern context cover custom day default define deliver "
    "describe description desire do doe done each easily easy effective efficient enable end "
    "enhance etc every everyone everything expert feature field fill find first follow full fully "
    "functionality function general generic get give go goal good great handle have help helper "
    "helpful here how implement important include incredible information input intelligent invoke "
    "it job just keep kind know later leverage like load lot magic main make many manner many "
    "matter may me more most multiple my necessary need new nice now objective offer one operation "
    "other our output people perform placeholder please plugin possible power powerful problem "
    "proper provide purpose put quality quick quickly relate related relevant request require "
    "respond right robust run sample scenario see set several should simple situation skill "
    "smart solution solve some something specific specified standard stuff suitable support sure "
    "system take task tbd test thing time todo tool topic trigger tri try type unspecified "
    "up us use useful user utility variou various very via want way we what whatever when "
    "whenever where wherever which while who will wish work would you your".split()
)
"""English words, without endings, that suit every skill."""

_GENERIC_SIGNS = regex(
    "能够|可以|需要|使用|用户|用于|用来|功能|技能|能力|技巧|时候|处理|执行|各种|各类|各式各样|所有|"
    "任何|一切|任务|事情|问题|工作|需求|要求|一个|这个|那个|一款|一种|有用|实用|好用|强大|万能|通用|"
    "全能|智能|助手|工具|插件|帮助|帮忙|辅助|协助|提供|支持|完成|解决|实现|进行|相关|情况|场景|适用|"
    "适合|触发|激活|调用|什么|都能|多种|多个|高级|专业|简单|方便|高效|快速|自动|默认|描述|说明|占位|"
    "待补充|待定|示例|测试|必要|随时|其他|以及|或者|并且|当|时|此|该|本|这|您|你|我|的|了|和|与|或|在|"
    "是|有|为|对|用|做|能|会|可|请|就|都|也|等|于|下|中|里|之|后|前|被|把|让|给|要|想|个|种|类|项|式|"
    "会社|スキル|機能|必要|場合|使用|使う|使い|利用|便利|様々|何でも|万能|ツール|支援|提供|です|ます|"
    "する|した|して|できる|この|その|とき|など|から|まで|[はがのをにでともな]|"
    "기능|스킬|필요|경우|사용|유용|도구|모든|작업|제공|지원|합니다|하는|하세요|이|가|을|를|은|는|할|때|수|있는|의"
)
"""Words of Chinese, Japanese and Korean that suit every skill."""
_CJK = regex("[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")


def _plain(word: str) -> str:
    ending = next(end for end in _ENDINGS if word.endswith(end))
    return word[: -len(ending)].rstrip("e") if ending else word.rstrip("e")


_GENERIC_FORMS = _GENERIC.union(map(_plain, _GENERIC))


def is_stub(name: str, description: str) -> bool:
    """Return whether a description has no word of content that the name does not have.

    >>> is_stub("pdf-merge", "Use when this capability is needed.")
    True
    >>> is_stub("pdf-merge", "Merges PDFs."), is_stub("pdf-merge", "Use when PDFs are joined.")
    (False, False)
    """
    if len(description) > CHARS_MAX:
        return False
    generic = 0
    if not description.isascii():
        rest, generic = _GENERIC_SIGNS.subn(" ", description)
        own = set(_CJK.findall(rest)) - set(name)
        if own:
            return False
        description = _CJK.sub(" ", rest)
    of_name = {_plain(word) for word in words(name.lower())}
    for word in words(description.lower()):
        plain = _plain(word)
        if word in _GENERIC_FORMS or plain in _GENERIC_FORMS:
            generic += 1
        elif word not in STOP_WORDS and plain not in of_name:
            return False
    return generic >= _GENERIC_LEAST or not description.strip()
