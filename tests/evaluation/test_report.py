"""The report: hostile answers stay text, and what did not improve is said plainly."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scoring_inputs import make_row

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.grading import Graded
from evaluation.publication import ModelSummary, Summary
from evaluation.report import render, write_report
from evaluation.results import summarise

HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> {{ 7*7 }}"
CHROMIUM = Path("/usr/bin/chromium")


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
            "output": text, "mentions": False,
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
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data


@pytest.fixture
def summary() -> Summary:
    return summary_of(result_of("domain_qa_closed_book", [False] * 30, [True] * 20 + [False] * 10))


def test_hostile_text_stays_text(summary: Summary) -> None:
    page = render(summary, samples_of(HOSTILE))
    found = Elements(page)
    assert found.tags.count("script") == 2
    assert "img" not in found.tags
    data = json.loads(found.scripts[0])
    assert data["problems"][0]["prompt"] == HOSTILE
    assert "{{ 7*7 }}" in data["problems"][0]["answers"]["base"][0]["text"]


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


def test_a_long_evaluation_shows_a_part_and_says_so(
    summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluation.report.MAX_PROBLEMS_SHOWN", 3)
    page = render(summary, samples_of("x", count=5))
    assert "3 of 5 problems; samples.parquet holds all" in page


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's chromium is not installed")
def test_the_sample_browser_works_by_keyboard(summary: Summary, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    samples = samples_of(HOSTILE, count=3)
    samples[3] |= {"answer": "found it", "score": 1.0, "outcome": "pass"}  # tuned gains r1
    write_report(tmp_path / "report.html", summary, samples)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        assert page.title() == "Evaluation abc"
        assert page.text_content("#count") == "3 problems"
        page.keyboard.press("j")
        assert page.get_attribute("#p1", "aria-selected") == "true"
        assert HOSTILE in (page.text_content("#detail") or "")
        page.select_option("#f-change", "gained")
        assert page.text_content("#count") == "1 problem"
        assert "found it" in (page.text_content("#detail") or "")
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("nowhere to be found")
        assert page.text_content("#count") == "0 problems"
        assert errors == []
        browser.close()
