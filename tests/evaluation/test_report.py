"""The report: hostile answers stay text, and what did not improve is said plainly."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chromium import listen, open_chromium
from scoring_inputs import make_row

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.grading import Graded
from evaluation.categories import by_category
from evaluation.publication import ModelSummary, Summary
from evaluation.report import render, write_report
from evaluation.results import summarise

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> {{ 7*7 }}"


def result_of(name: str, base: list[bool], tuned: list[bool], answer: str = "no") -> Any:
    rows = [make_row(f"r{i}", "What?", "yes") for i in range(len(base))]

    def graded(passed: list[bool]) -> dict[str, list[Graded]]:
        return {
            f"r{i}": [Graded("yes", 1.0, "pass", "") if ok else Graded(answer, 0.0, "mismatch", "")]
            for i, ok in enumerate(passed)
        }

    answers = {"base": graded(base), "tuned": graded(tuned)}
    return summarise(
        BENCHMARKS[name], rows, answers, ks=(1,), seed=0, seconds={"base": 1.0, "tuned": 2.0}
    )


def summary_of(*results: Any) -> Summary:
    return Summary(
        id="abc",
        key="abcdef",
        dataset="dsm",
        models=[
            ModelSummary(label=label, path=f"/m/{label}", hash="h", registered=False)
            for label in ("base", "tuned")
        ],
        inputs={"dataset": "k", "simulator": ""},
        sandbox="bwrap",
        benchmarks=list(results),
    )


def samples_of(text: str, count: int = 2) -> list[dict[str, Any]]:
    return [
        {
            "benchmark": "domain_qa_closed_book", "row_id": f"r{i}", "model": model, "sample": 0,
            "answer": text, "score": 0.0, "outcome": "mismatch", "detail": text, "official": None,
            "output": "", "mentions": False,
            "task": text, "difficulty": 1, "prompt": text, "reference": text, "verifier": "exact",
            "cluster": f"r{i}", "document": text, "page": 3,
        }
        for i in range(count)
        for model in ("base", "tuned")
    ]  # fmt: skip


class Elements(HTMLParser):
    """Start tags of a page, and the text of its script elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


@pytest.fixture
def summary() -> Summary:
    return summary_of(result_of("domain_qa_closed_book", [False] * 30, [True] * 20 + [False] * 10))


def test_hostile_text_stays_text(summary: Summary) -> None:
    page = render(summary, samples_of(HOSTILE))
    found = Elements(page)
    assert found.tags.count("script") == 2
    assert "img" not in found.tags
    data = json.loads(found.scripts[0])
    [problem, *_] = data["problems"]
    assert data["texts"][problem["prompt"]] == HOSTILE
    assert "{{ 7*7 }}" in data["texts"][problem["answers"][0][0]["text"]]


def test_hostile_names_stay_names(summary: Summary) -> None:
    """A model's label and a benchmark's title stand in tables, pictures and their descriptions."""
    renamed = json.loads(summary.model_dump_json().replace('"tuned"', json.dumps(HOSTILE + " $x$")))
    renamed["benchmarks"][0]["title"] = HOSTILE + " $\\alpha"
    samples = [
        {**row, "model": HOSTILE + " $x$" if row["model"] == "tuned" else row["model"]}
        for row in samples_of(HOSTILE)
    ]
    page = render(Summary.model_validate(renamed), samples)
    found = Elements(page)
    assert found.tags.count("script") == 2
    assert "img" not in found.tags
    assert "$x$" in page


def test_only_the_page_s_own_script_may_run(summary: Summary) -> None:
    page = render(summary, samples_of("x"))
    [allowed] = re.findall(r"script-src '(sha256-[^']+)'", page)
    script = Elements(page).scripts[1]
    assert allowed == "sha256-" + base64.b64encode(sha256(script.encode()).digest()).decode()
    assert "unsafe-eval" not in page
    assert re.findall(r"script-src[^;]*unsafe-inline", page) == []


def test_the_page_needs_nothing_from_elsewhere(summary: Summary) -> None:
    page = render(summary, samples_of("x"))
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page)
    assert not re.search(r"url\((?!#)|@import", page)
    assert "default-src 'none'" in page


def test_a_gain_and_its_absence_are_said_plainly(summary: Summary) -> None:
    flat = result_of("rtl_completion", [False] * 30, [True] + [False] * 29)
    page = render(summary_of(*summary.benchmarks, flat), samples_of("x"))
    assert "tuned is better than the baseline: 0.0 % to 66.7 %" in page
    assert "no significant gain of tuned over the baseline: 0.0 % to 3.3 %" in page


def test_a_loss_is_called_a_loss() -> None:
    worse = result_of("domain_qa_open_book", [True] * 20, [False] * 15 + [True] * 5)
    assert worse.comparisons[0].finding == "loss"
    assert "tuned is worse than the baseline: 100.0 % to 25.0 %" in render(summary_of(worse), [])


def test_few_wins_are_not_a_gain() -> None:
    """Five wins and no loss: the bootstrap excludes 0, the exact test (p = 0.0625) does not."""
    close = result_of("domain_qa_open_book", [False] * 40, [True] * 5 + [False] * 35)
    assert close.comparisons[0].low > 0
    assert close.comparisons[0].p_value == pytest.approx(0.0625)
    assert close.comparisons[0].finding == "no difference shown"


def test_the_same_results_give_the_same_page(summary: Summary, tmp_path: Path) -> None:
    write_report(tmp_path / "a.html", summary, samples_of("x"))
    write_report(tmp_path / "b.html", summary, samples_of("x"))
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_long_evaluation_shows_a_part_of_every_benchmark_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evaluation.report_samples.MAX_TEXTS", 900)
    names = ("domain_qa_open_book", "domain_qa_closed_book")
    summary = summary_of(*(result_of(name, [False] * 5, [True] * 5) for name in names))
    samples = [
        {**row, "benchmark": name, "prompt": f"{name} {row['row_id']} {'x' * 100}"}
        for name in names
        for row in samples_of("y", count=5)
    ]
    page = render(summary, samples)
    assert "8 of 10 problems; samples.parquet holds all" in page
    data = json.loads(Elements(page).scripts[0])
    assert [problem["benchmark"] for problem in data["problems"]] == [0] * 4 + [1] * 4


def test_a_text_is_held_once_and_a_huge_one_is_cut_and_says_so(summary: Summary) -> None:
    page = render(summary, samples_of("x" * 100_000, count=4))
    data = json.loads(Elements(page).scripts[0])
    longest = max(data["texts"], key=len)
    assert sum(len(text) > 1000 for text in data["texts"]) == 1
    assert longest.endswith("80,000 more characters are in samples.parquet")


def test_what_the_ceiling_forbids_is_refused_in_the_report() -> None:
    high = result_of("domain_qa_open_book", [True] * 63 + [False] * 37, [True] * 90 + [False] * 10)
    page = render(summary_of(high), [])
    assert "twice 63.0% is 126.0%, above the ceiling of 100.0%" in page
    assert "half the errors" in page


def test_a_kind_of_question_has_an_interval_of_its_own() -> None:
    samples = samples_of("x", count=40)
    for index, row in enumerate(samples):
        row["task"] = "lookup" if index < 40 else "relation"
        row["score"] = float(row["model"] == "tuned" and index < 20)
    kinds = by_category(samples)
    assert [(kind.task, kind.problems) for kind in kinds] == [("lookup", 20), ("relation", 20)]
    tuned = kinds[0].scores["tuned"]
    assert (tuned.value, tuned.problems) == (0.5, 20)
    # Clopper-Pearson for 10 of 20, from published tables: 27.2 % to 72.8 %.
    assert (tuned.low, tuned.high) == pytest.approx((0.272, 0.728), abs=0.03)
    assert by_category(samples, {"domain_qa_closed_book": {f"r{i}" for i in range(20)}})[
        0
    ].task == ("relation")


@pytest.fixture
def opened(summary: Summary, tmp_path: Path) -> Iterator[Callable[[list[dict[str, Any]]], Page]]:
    """Opens the report of some samples in a browser; fails on any complaint of the page."""
    complaints: list[list[str]] = []
    with open_chromium() as browser:

        def open_report(samples: list[dict[str, Any]]) -> Page:
            write_report(tmp_path / "report.html", summary, samples)
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            complaints.append(listen(page))
            page.goto((tmp_path / "report.html").as_uri())
            return page

        yield open_report
    assert not any(complaints)


def counted(page: Page, text: str) -> None:
    """Wait until the browser counts this."""
    page.wait_for_function(
        "text => document.getElementById('count').textContent === text", arg=text
    )


@pytest.mark.browser
def test_the_sample_browser_works_by_keyboard(
    opened: Callable[[list[dict[str, Any]]], Page],
) -> None:
    samples = samples_of(HOSTILE, count=3)
    samples[3] |= {"answer": "found it", "score": 1.0, "outcome": "pass"}  # tuned gains r1
    page = opened(samples)
    assert page.title() == "Evaluation abc"
    assert page.text_content("#count") == "3 problems"
    page.keyboard.press("j")
    assert page.get_attribute("#p1", "aria-selected") == "true"
    assert HOSTILE in (page.text_content("#detail") or "")
    page.select_option("#f-change", "gained")
    counted(page, "1 problem")
    assert "found it" in (page.text_content("#detail") or "")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("nowhere to be found")
    counted(page, "0 problems")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "list"


@pytest.mark.browser
def test_hostile_answers_are_shown_as_they_are_and_do_nothing(
    opened: Callable[[list[dict[str, Any]]], Page],
) -> None:
    samples = samples_of(HOSTILE, count=2)
    huge = "<b>" + "x" * 300_000
    samples[0] |= {"answer": huge, "output": "answer.v:1: syntax error </script>"}
    page = opened(samples)
    assert page.title() == "Evaluation abc"
    shown = page.text_content("#detail") or ""
    assert "<b>xxx" in shown
    assert "280,003 more characters are in samples.parquet" in shown
    assert "compiler and simulator said" in shown
    assert "syntax error </script>" in shown
    assert page.locator("#detail b, #detail img, #detail script").count() == 0
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "a huge line does not widen the page"


@pytest.mark.browser
def test_answers_are_found_by_model_verdict_and_text(
    opened: Callable[[list[dict[str, Any]]], Page],
) -> None:
    samples = samples_of("quiet", count=6)
    samples[3] |= {"outcome": "compile", "output": "undeclared wire"}  # of tuned, r1
    samples[4] |= {"outcome": "limit:cpu"}  # of base, r2
    page = opened(samples)
    page.select_option("#f-verdict", "group did not compile")
    counted(page, "1 problem")
    page.select_option("#f-model", label="base")
    counted(page, "0 problems")
    page.select_option("#f-verdict", "")
    counted(page, "6 problems")
    page.fill("#f-text", "UNDECLARED")
    counted(page, "0 problems")
    page.select_option("#f-model", label="tuned")
    counted(page, "1 problem")
    page.click("#f-reset")
    counted(page, "6 problems")


@pytest.mark.browser
def test_thousands_of_samples_are_in_reach_and_not_in_the_page(
    opened: Callable[[list[dict[str, Any]]], Page],
) -> None:
    samples = samples_of("quiet", count=1500)
    samples[-1] |= {"answer": "the very last", "score": 1.0, "outcome": "pass"}
    page = opened(samples)
    assert page.text_content("#count") == "1500 problems"
    assert page.locator("#list [role=option]").count() < 40
    page.focus("#list")
    page.keyboard.press("End")
    assert page.get_attribute("#list", "aria-activedescendant") == "p1499"
    assert page.get_attribute("#p1499", "aria-selected") == "true"
    assert "the very last" in (page.text_content("#detail") or "")
    page.keyboard.press("PageUp")
    assert page.locator("#list [role=option]").count() < 40


@pytest.mark.browser
def test_a_dot_of_the_scatter_shows_its_problems(
    opened: Callable[[list[dict[str, Any]]], Page],
) -> None:
    samples = samples_of("quiet", count=5)
    for row in samples:
        if row["row_id"] in ("r1", "r4") and row["model"] == "tuned":
            row |= {"score": 1.0, "outcome": "pass"}
    page = opened(samples)
    dot = page.get_by_role("button", name="2 problems: 0 % of base, 100 % of tuned")
    dot.focus()
    page.keyboard.press("Enter")
    counted(page, "2 problems of the chosen dot")
    page.click("#f-reset")
    counted(page, "5 problems")


def test_of_several_models_each_is_compared_with_the_baseline() -> None:
    """Two models leave room for the differences beside the scores, more have them below."""
    rows = [make_row(f"r{i}", "What?", "yes") for i in range(30)]

    def graded(right: int) -> dict[str, list[Graded]]:
        verdicts = (Graded("no", 0.0, "mismatch", ""), Graded("yes", 1.0, "pass", ""))
        return {f"r{i}": [verdicts[i < right]] for i in range(30)}

    labels = {"base": 3, "tuned": 20, "other": 4}
    result = summarise(
        BENCHMARKS["domain_qa_open_book"], rows, {m: graded(n) for m, n in labels.items()},
        ks=(1,), seed=0, seconds=dict.fromkeys(labels, 1.0),
    )  # fmt: skip
    models = [ModelSummary(label=m, path=m, hash=m, registered=False) for m in labels]
    page = render(summary_of(result).model_copy(update={"models": models}), [])
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "tuned is better than the baseline: 10.0 % to 66.7 %" in text
    assert "no significant gain of other over the baseline: 10.0 % to 13.3 %" in text
    assert re.search(r"tuned \+56\.7 \+\d\d\.\d to \+\d\d\.\d 17 / 0", text)
