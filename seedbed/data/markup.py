"""Text out of HTML and Markdown. What is no markup, such as ``a < b``, ``List<int>`` and formulas, stays as it is."""

import html
import re
from collections.abc import Iterator
from html.entities import html5

from markdown_it import MarkdownIt
from markdown_it.token import Token

_INLINE = (
    "a abbr acronym b bdi bdo big cite code del dfn em font i img input ins kbd label mark q rp rt ruby s samp select "
    "small span strike strong sub sup textarea tt u var wbr"
)
_BLOCK = (
    "address article aside blockquote body br button caption center col colgroup dd details dialog div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main menu meta nav "
    "noscript ol option p pre script section style summary svg table tbody tfoot thead title tr ul video"
)
_CELLS = frozenset(["td", "th"])
_BLOCKS = frozenset(_BLOCK.split())
_ELEMENTS = _CELLS.union(_BLOCKS, _INLINE.split())
_VOID = frozenset(["br", "hr", "wbr"])
_OPTIONAL_END = frozenset(["dd", "dt", "li", "p", "td", "th", "tr"])
_HIDDEN = {name: re.compile(rf"</{name}\s*+>", re.IGNORECASE) for name in ("script", "style")}

# no part of a tag crosses the next "<", and nothing is tried twice: linear whatever the text
_TAG = re.compile(
    r"""<(?: (?P<comment>!--) | !doctype\s[^<>]*+> | \?xml\s[^<>]*+>
        | (?P<slash>/?+)(?P<name>[a-z][a-z0-9]*+)
          (?P<attributes>(?:\s++[\w:@.-]++(?:\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>=`]++))?+)*+)\s*+/?+> )""",
    re.IGNORECASE | re.VERBOSE,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*+\n)++")


def strip_html(text: str) -> str:
    """``text`` without tags, comments and the content of script and style; entities are resolved.

    A tag has the name of an HTML element, well-formed attributes (without "<" in their values) and a reason: it closes,
    is closed further on, has an attribute with a value, is br, hr or wbr, or is one whose end HTML lets out (p, li, td,
    ...), without attributes and in lower case or not right after a letter. So ``a<b && c>d``, ``List<int>``,
    ``#include <map>``, ``impl<P> Set<P>`` and ``<john@x.org>`` stay. Block elements become line breaks, cells of tables
    tabs; several blank lines become one. Entities need their semicolon. Not idempotent: ``&amp;lt;`` means ``&lt;``.

    html.parser is not used: its time is quadratic where tags stay open (47 s for 60 KB of ``<a ``), it takes every
    ``<int>`` for a tag, and its reading of broken markup changes between releases of Python.
    """
    if "<" in text:
        stripped = "".join(_without_tags(text))
        text = text if stripped == text else _BLANK_LINES.sub("\n\n", stripped).strip("\n")
    return _ENTITY.sub(_entity, text) if "&" in text else text


def _without_tags(text: str) -> Iterator[str]:
    closed = {match["name"].lower(): match.start() for match in _TAG.finditer(text) if match["slash"]}  # the last one
    last_comment_end = text.rfind("-->")
    done = 0
    for match in _TAG.finditer(text):
        start, name = match.start(), (match["name"] or "").lower()
        if start < done:  # in a comment or a script
            continue
        after = match.end()
        if match["comment"]:
            if last_comment_end < start + 2:
                continue
            after = text.index("-->", start + 2) + 3
        elif name and not _is_tag(match, name, text, closed.get(name, -1)):
            continue
        elif name in _HIDDEN and not match["slash"] and (end := _HIDDEN[name].search(text, after)):
            after = end.end()
        yield text[done:start]
        yield "\n" if name in _BLOCKS else "\t" if name in _CELLS and not match["slash"] else ""
        done = after
    yield text[done:]


def _is_tag(match: re.Match[str], name: str, text: str, last_closed: int) -> bool:
    if name not in _ELEMENTS:
        return False
    if match["slash"] or name in _VOID or last_closed > match.start() or "=" in match["attributes"]:
        return True
    type_parameter = match["name"].isupper() and text[max(match.start() - 1, 0)].isalnum()
    return name in _OPTIONAL_END and not match["attributes"] and not type_parameter


def _entity(match: re.Match[str]) -> str:
    entity = match[0]
    return html.unescape(entity) if entity[1] == "#" else html5.get(entity[1:], entity)


# entities are for strip_html
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("entity")
_PARSER.validateLink = lambda url: True  # also javascript:, since addresses go
_MAX_LEVEL = _PARSER.options["maxNesting"]  # the parser drops what is nested deeper
_MARKS = re.compile(r"[*_`~#\[\\|]|^[ \t]*+(?:>|[-+][ \t]|[-=]++[ \t]*+$|\d{1,9}\)|<)", re.MULTILINE)
# U+FDD0 and a number stand for what the parser must not read; (1) not possessive, where Python 3.11.2 is wrong
_KEPT = re.compile(
    r"""\$\$[^$]++\$\$ | \$(?=\S)[^$\n]++(?<=\S)\$(?!\d)                     # formulas
    | \\\((?:[^\\]|\\(?![()]))*\\\) | \\\[(?:[^\\]|\\(?![\[\]]))*\\\]        # the same between backslashes (1)
    | \\[\\'"{},;:&%$^=/<?@]                                                # commands of LaTeX, rather than escapes
    | (?<!`)``(?=[^`\n]{1,200}?'')                                          # its quotation marks, rather than code
    | (?<=[A-Za-z0-9)\]"])\*(?=[A-Za-z0-9(\[])                              # 12*21, rather than emphasis
    | \[(?!(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*+\])*+\])*+\])                 # an open bracket: their depth costs time
    | [\0\ufdd0\ufdd1]                                                      # what the parser or this would replace""",
    re.VERBOSE,
)
_KEPT_MARK = re.compile("\ufdd0(\\d+)\ufdd0")
_WIDE = "“”‘’（）《》〈〉「」『』【】：，。！？；、…—"
_BESIDE_WIDE = re.compile(rf"(?<=[{_WIDE}])(?=\*)|(?<=\*)(?=[{_WIDE}])")


def strip_markdown(text: str) -> str:
    """``text`` without Markdown's marks (CommonMark with tables and strikethrough), as markdown-it reads it.

    Links and images leave their text, code its code, ordered lists their numbers, tables their cells with tabs between;
    addresses, titles and definitions of links go. Several blank lines become one. Formulas (``$…$``, ``$$…$$``,
    ``\\(…\\)``, ``\\[…\\]``), LaTeX's commands, products (``12*21``) and HTML stay as they are. ``**重点：**`` is
    emphasis also where a Chinese letter follows. A text nested deeper than the parser goes (20 levels) stays whole. Not
    idempotent: code may look like Markdown.
    """
    if not _MARKS.search(text):
        return text
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\ufdd0{len(kept) - 1}\ufdd0"

    # U+FDD1 between a mark and wide punctuation counts as a letter there, which makes the mark one inside a word
    tokens = _PARSER.parse(_BESIDE_WIDE.sub("\ufdd1", _KEPT.sub(keep, text)))
    if any(token.level >= _MAX_LEVEL - 1 for token in tokens):
        return text
    plain = "".join(_blocks(tokens)).replace("\ufdd1", "")
    return _KEPT_MARK.sub(lambda match: kept[int(match[1])], plain)


def _blocks(tokens: list[Token]) -> Iterator[str]:
    """The text of blocks with the line breaks between them; blank lines are where the source has some."""
    start, end = -1, 0  # lines of the last text
    number = ""
    for token in tokens:
        if token.type == "list_item_open" and token.info:
            number = f"{token.info}{token.markup} "
        elif token.type == "tbody_open":
            end += 1  # the line below the head
        elif token.map and token.type in ("inline", "fence", "code_block"):
            in_row = token.map[0] == start
            yield "\t" if in_row else "" if start < 0 else "\n\n" if token.map[0] > end else "\n"
            yield number
            yield token.content.removesuffix("\n") if token.children is None else _inline(token.children)
            start, end = token.map
            number = ""


def _inline(tokens: list[Token]) -> str:
    parts = []
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        else:  # of an image, the children are its text
            parts.append(_inline(token.children) if token.children else token.content)
    return "".join(parts)
