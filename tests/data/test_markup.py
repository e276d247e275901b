import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.markup import strip_html, strip_markdown
from seedbed.files.jsonl import read_jsonl


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        "if (a<b && c>d) return;",
        "for i<p and q>r",
        "List<int> x; Map<String, List<Object>> y; vector<a> z;",
        "#include <map>\n#include <time.h>",
        "impl<P> Set<P> for Vec<T>",
        "git log <path> <option> <source>",
        "mail <john@x.org> or <https://x.org>",
        "cout << x << y; x <<= 2; a <- b; <3",
        "<config><key>1</key></config>",
        "&notit; R&D &sum AT&T; a && b",
        "<!-- never ends",
        "    indented\n\n\n\nfar below",
    ],
)
def test_what_is_no_html_stays(text):
    assert strip_html(text) == text


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("<P>One.<P>Two", "One.\nTwo"),
        ("one<p>two<br>three<br/>four", "one\ntwo\nthree\nfour"),
        ("<ul>\n<li>a\n<li>b\n</ul>", "a\n\nb"),
        ("文字<b>粗</b>体 <a href='x'>链接</a>", "文字粗体 链接"),
        ("<div class=\"a\" data-x='1' hidden><span>x</span></div>", "x"),
        ("a<script type='x'>if (a<b) {}</script>b<STYLE>p {}</STYLE >c", "a\nb\nc"),
        ("a<!-- <b>gone</b> -->b<!-->c", "abc"),
        ("<!DOCTYPE html>\n<html><head><title>T</title></head></html>", "T"),
        ("<table><tr><td>1</td><td>2</td></tr></table>", "\t1\t2"),
        ("&lt;b&gt; &amp;amp; &#39;x&#x27; &times; &nbsp;", "<b> &amp; 'x' × \u00a0"),
        ("<pre>  a\n    b</pre>", "  a\n    b"),
        ("<b>List<int></b>", "List<int>"),
        ('<img src="a.png" alt="a > b">', ""),
    ],
)
def test_html(text, stripped):
    assert strip_html(text) == stripped


def test_html_inside_a_script_does_not_end_it():
    assert strip_html("<script>'<!-- </b>'</script>x<!-- <script> -->y") == "xy"


@given(st.text(alphabet=st.characters(exclude_characters="<&", exclude_categories=["Cs"])))
def test_text_without_its_characters_is_untouched_by_html(text):
    assert strip_html(text) == text


MARKDOWN = """# Title #

Some *emphasis*, **strong**, `code` and a
line \x20
more ~~gone~~.

* one
* two
    1. first
    2) second

> said
> twice

| a | b |
|---|--:|
| 1 | `2` |
| 3 | |

```python
def f():
    return x ** 2  # *no*
```

![a cat](cat.png "t") [link](http://x.org/a_(b)) [by *name*][1] <http://x.org>

[1]: http://x.org

Under
-----
***
end"""

PLAIN = """Title

Some emphasis, strong, code and a
line
more gone.

one
two
1. first
2) second

said
twice

a	b
1	2
3\t

def f():
    return x ** 2  # *no*

a cat link by name http://x.org

Under

end"""


def test_markdown():
    assert strip_markdown(MARKDOWN) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "plain text, 1 < 2,\n  indented\n\n\nand far below",
        "$a_1 * b_2$ and $x^*_i$, $y^*_j$",
        "$$\n\\begin{aligned}\na &= b \\\\\n- c_1 * d_2\n\\end{aligned}\n$$",
        "\\[ a_1 \\\\ b_2 \\] and \\( x^* \\)",
        "12*21 = 252 and 2*2 = 4, (a)*(b)*c",
        "snake_case_name and a * b * c",
        "``quoted'' by LaTeX, \\'etale, \\{x\\}",
        "nul \0 and \ufdd0 \ufdd1 *",
        "[open [brackets ![and more",
        ">" * 40 + " deep",
    ],
)
def test_what_is_no_markdown_stays(text):
    assert strip_markdown(text) == text


def test_chinese_emphasis_next_to_punctuation():
    assert strip_markdown("**重点：**内容，文字**“引用”**文字，*（注）*后") == "重点：内容，文字“引用”文字，（注）后"


def test_ordered_list_in_a_list_keeps_its_number():
    assert strip_markdown("1. - a\n   - *b*\n2. c") == "1. a\nb\n2. c"


@given(st.lists(st.sampled_from([*"*_#>-+1.) \n", "  ", "ab", "文", "：", "“", "$", "\\("]), max_size=60).map("".join))
def test_marks_take_no_letters_with_them(text):
    assert [char for char in strip_markdown(text) if char.isalpha()] == [char for char in text if char.isalpha()]


@pytest.mark.realdata
def test_markdown_of_real_pages_keeps_the_chinese(small_corpus):
    path = next(path for path in small_corpus if path.stem == "zh_tech")
    for _, record in read_jsonl(path):
        text = record["text"]
        before, after = (sum("\u4e00" <= char <= "\u9fff" for char in each) for each in (text, strip_markdown(text)))
        assert before * 0.98 - 5 <= after <= before
