"""The pages in a real browser: a goal set by clicking and reached, scrubbing, comparing, the keyboard alone."""

import functools
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from exploring import ROOT, exploring
from small_runs import write_run

from saltwm.envs.base import StateField
from saltwm.interop.recordings import write_dataset

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver"),
    pytest.mark.timeout(900),
]
PATIENCE = 120


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(PATIENCE)  # axe on a busy machine
    yield Browser(driver)
    driver.quit()


class Browser:
    """Selenium in the words of these tests."""

    def __init__(self, driver):
        self.driver = driver
        self.resize(1400, 1000)

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, **features):
        plain = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": plain})

    def open(self, running, view):
        self.driver.get("about:blank")
        self.driver.get(f"{running.address}#/{view}")
        self.wait_until_ready()

    def wait_until_ready(self):
        self.wait(lambda: self.all("main[aria-busy=false] .view") and self.all("#status")[0].text == "ready")

    def wait(self, is_true, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not (found := is_true()):
            assert time.monotonic() < deadline, "\n".join(self.console()) or self.driver.title
            time.sleep(0.1)
        return found

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def named(self, selector, text):
        return next(element for element in self.all(selector) if element.text == text)

    def choose(self, label, value):
        script = """
            const labels = [...document.querySelectorAll('label.field')];
            const label = labels.find((x) => x.firstChild.textContent === arguments[0]);
            const select = label.querySelector('select');
            select.value = arguments[1];
            select.dispatchEvent(new Event('change'));
            return select.value;
        """
        assert self.driver.execute_script(script, label, value) == value

    def picture(self, place):
        """The pixels of one of the pictures, to see whether they change."""
        return self.driver.execute_script(
            "return document.querySelectorAll('.pictures canvas')[arguments[0]].toDataURL()", place
        )

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def click_at(self, element, x, y):
        """A click at shares of an element's width and height."""
        from selenium.webdriver.common.action_chains import ActionChains

        size = element.size
        offset = (round((x - 0.5) * size["width"]), round((y - 0.5) * size["height"]))
        ActionChains(self.driver).move_to_element_with_offset(element, *offset).click().perform()

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def page(browser):
    browser.console()
    browser.resize(1400, 1000)
    browser.prefer(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
    yield browser
    assert browser.console() == []


def test_a_goal_set_by_clicking_is_reached(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton&start=60_130&goal=70_140")
    before = page.picture(2)
    page.click_at(page.all(".pictures .frame")[2], 92 / 224, 56 / 224)
    page.wait(lambda: page.picture(2) != before)
    page.named("button", "Play").click()
    page.wait(lambda: "Reached in" in page.all("[role=status].small")[0].text)
    assert page.all(".badge")[0].text == "reached"
    assert page.all(".thumbs canvas")
    assert "goal=" in page.driver.current_url


def test_a_push_while_it_acts_is_seen_and_recovered_from(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton&start=60_130&goal=92_56&look=1")
    page.named("button", "One step").click()
    page.wait(lambda: page.all(".thumbs canvas") and page.all("#status")[0].text == "ready")
    page.click_at(page.all(".pictures .frame")[0], 75 / 224, 110 / 224)
    page.wait(lambda: "Pushed" in page.all("#notice")[0].text)
    page.named("button", "Play").click()
    page.wait(lambda: page.all(".badge"))


def test_play_in_the_middle_of_one_step_plays(page, running):
    page.open(running, "act?model=two-room-salt&planner=cem&start=60_130&goal=75_100&look=1")
    # Both at once: however long the step's decision takes, the second comes before its end.
    page.driver.execute_script(
        "const named = (text) => [...document.querySelectorAll('button')].find((b) => b.textContent === text);"
        "named('One step').click(); named('Play').click()"
    )
    page.wait(lambda: page.all(".badge"))
    assert "Reached in" in page.all("[role=status].small")[0].text


def test_a_push_in_the_middle_of_a_decision_stops_nothing(page, running):
    page.open(running, "act?model=two-room-salt&planner=cem&start=60_130&goal=75_100&look=1")
    page.named("button", "One step").click()
    page.wait(lambda: page.all(".thumbs canvas") and page.all("#status")[0].text == "ready")
    page.named("button", "Play").click()
    # CEM plans for seconds, so the push comes while it does: the plan of the old place is not carried out
    page.wait(lambda: page.all("#status")[0].text == "planning …")
    page.click_at(page.all(".pictures .frame")[0], 66 / 224, 118 / 224)
    page.wait(lambda: page.all(".badge"))
    assert "Reached in" in page.all("[role=status].small")[0].text


def test_the_copied_command_names_start_goal_and_settings(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton&start=60_130&goal=92_56&look=2")
    page.named("button", "Copy command").click()
    page.wait(lambda: "saltwm play" in page.all("#notice")[0].text)
    said = page.all("#notice")[0].text
    for words in ("--start '[60.0, 130.0]'", "--goal '[92.0, 56.0]'", "--planner gauss-newton", "--look-every 2"):
        assert words in said


def test_the_page_rolls_out_what_the_model_does(page, running):
    page.open(running, "imagine?model=two-room-salt")
    page.wait(lambda: "differs by" in page.all("[role=status].small")[0].text or _move_a_slider(page))
    page.wait(lambda: "differs by" in page.all("[role=status].small")[0].text)
    words = page.all("[role=status].small")[0].text.split("differs by ")[1]
    assert float(words.split()[0]) < 1e-3
    page.wait(lambda: "rest 0" in page.all("[aria-label^='Share of each']")[0].get_attribute("aria-label"))


def _move_a_slider(page):
    page.driver.execute_script(
        "const s = document.querySelector('.block input'); s.value = 0.5; s.dispatchEvent(new Event('input'))"
    )
    time.sleep(1)
    return False


def test_an_address_of_imagine_has_the_start_and_the_sliders(page, running):
    actions = "_".join(["0.26", "-0.5"] * 10)
    page.open(running, f"imagine?model=two-room-salt&episode=3&step=10&blocks=2&actions={actions}")
    first = page.driver.execute_script("return [...document.querySelectorAll('.block input')].map((x) => x.value)")
    assert first == ["0.26", "-0.5"] * 2
    assert page.all("figcaption span")[0].text == "step 10"
    assert f"actions={actions}" in page.driver.current_url
    page.named("button", "as recorded").click()
    assert "actions=" not in page.driver.current_url
    assert "step=10" in page.driver.current_url


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A server of a world without a simulator: many short episodes, small actions, states with names of their own."""
    root, rng = tmp_path_factory.mktemp("robot"), np.random.default_rng(0)
    frames = rng.integers(0, 256, (11, 16, 16, 3), dtype=np.uint8)
    episodes = [
        {"frames": frames, "actions": rng.uniform(-0.005, 0.005, (10, 2)), "states": rng.normal(size=(11, 3))}
        for _ in range(1237)
    ]
    named = (StateField("arm", 0, 2), StateField("grip", 2, 3, "N"))
    options = {"name": "robot", "image_size": 16, "frame_every": 5, "fields": named}
    dataset = write_dataset(root / "robot-data", episodes, **options)
    write_run(root / "robot-model", world=dataset.world)
    with exploring(root / "robot-data", root / "robot-model") as server:
        yield server


def test_the_number_of_an_episode_is_not_rounded(page, robot):
    page.open(robot, "data")
    page.named("th button", "episode").click()
    rows = [row.text.split()[0] for row in page.all("tbody tr")[:3]]
    assert rows == ["1236", "1235", "1234"]
    page.driver.get("about:blank")


def test_numbers_are_whole_or_have_three_digits(page, running):
    page.open(running, "data")
    numbers = [0, 999, 1996, -12345, 1234567, 1.23456, 0.00012345, 23456.7]
    script = """
        const [numbers, done] = arguments;
        import('./dom.js').then(({ number }) => done(numbers.map((x) => number(x))));
    """
    found = page.driver.execute_async_script(script, numbers)
    assert found == ["0", "999", "1996", "-12345", "1234567", "1.23", "1.2e-4", "2.3e4"]


def sliders(page):
    """Value, least and most of each slider of the action blocks."""
    return page.driver.execute_script(
        "return [...document.querySelectorAll('.block input')].map((x) => [x.value, x.min, x.max].map(Number))"
    )


def slide(page, place, value):
    """Move one slider of the action blocks, as a hand does."""
    script = """
        const slider = document.querySelectorAll('.block input')[arguments[0]];
        slider.value = arguments[1];
        slider.dispatchEvent(new Event('input'));
    """
    page.driver.execute_script(script, place, value)


def test_sliders_and_draws_fill_a_range_of_any_size(page, robot):
    page.open(robot, "imagine?model=robot-model&blocks=2")
    slide(page, 0, 0.004)
    value, low, high = sliders(page)[0]
    assert value == pytest.approx(0.004, abs=(high - low) / 200)
    assert page.all(".block output")[0].text == f"{value:.5f}"
    page.named("button", "random").click()
    drawn = [float(number) for number in re.search(r"actions=([^&]+)", page.driver.current_url)[1].split("_")]
    assert len(set(drawn)) == 4  # two blocks of two numbers, each for five steps
    assert all(abs(number) <= 0.005 for number in drawn)
    assert max(map(abs, drawn)) > 1e-4
    page.driver.get("about:blank")


def test_an_address_keeps_what_is_recorded_of_untouched_blocks(page, robot):
    page.open(robot, "imagine?model=robot-model&blocks=2")
    slide(page, 2, 0.004)  # of the second block
    page.wait(lambda: "actions=" in page.driver.current_url)
    view = page.driver.current_url.split("#/")[1]
    page.open(robot, view)
    known = [element.text for element in page.all(".line")[0].find_elements("css selector", "figcaption span")]
    assert known == ["", "not recorded"]
    page.driver.get("about:blank")


def test_a_view_is_seen_before_its_world_is_there_and_used_after(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton")
    (worker,) = running.workers()
    os.kill(worker, signal.SIGSTOP)
    try:
        page.press("2")
        page.wait(lambda: page.all("main[aria-busy=true] .view h1"))
        assert page.all("h1")[0].text == "Imagine"
        assert page.driver.execute_script("return document.querySelector('main').inert")
    finally:
        os.kill(worker, signal.SIGCONT)
    page.wait(lambda: page.all("main[aria-busy=false] .view"))
    assert page.all(".block input")
    page.wait(lambda: page.all("#status")[0].text == "ready")


def test_the_progress_of_a_decoder_is_told_wherever_one_looks(page, running):
    def share():
        found = re.search(r"being fitted meanwhile \((\d+) %\)", page.driver.find_element("tag name", "main").text)
        ready = "a small decoder" in page.driver.find_element("tag name", "main").text
        return 100 if ready else int(found[1]) if found else None

    page.open(running, "imagine?model=two-room-salt")
    page.wait(lambda: share() is not None)
    page.press("3")
    page.wait(lambda: page.all("h1") and page.all("h1")[0].text == "Recorded episodes")
    page.press("2")  # a view that is opened again hears of it too
    page.wait(lambda: page.all("h1")[0].text == "Imagine" and share() is not None)
    before = share()
    page.wait(lambda: share() == 100 or share() > before, 600)


def test_act_on_this_task_plans_as_the_record_did(page, running):
    page.open(running, "browse?cell=two-room-salt-clean-seed1&task=0")
    page.named("a", "Act on this task").click()
    page.wait(lambda: page.all("main[aria-busy=false] .view h1") and page.all("h1")[0].text == "Watch a model act")
    page.wait_until_ready()
    for words in ("planner=cem", "look=plan", "horizon=5", "task=0"):
        assert words in page.driver.current_url
    assert [select.get_property("value") for select in page.all(".panel select")][:3] == [
        "two-room-salt",
        "cem",
        "plan",
    ]


def test_a_planner_with_settings_of_its_own_stands_beside_the_usual_ones(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton,mu=0.05&start=60_130&goal=92_56&look=1")
    choice = page.all(".panel select")[1]
    assert choice.get_property("value") == "gauss-newton,mu=0.05"
    assert "Least squares" in page.all(".panel")[0].text
    page.named("button", "Copy command").click()
    page.wait(lambda: "--planner gauss-newton,mu=0.05" in page.all("#notice")[0].text)


def is_bounded(page):
    label = next(label for label in page.all("label.check") if "bounds" in label.text)
    return label.find_element("css selector", "input").is_selected()


def test_a_task_of_the_authors_keeps_its_number_and_its_bounds_until_the_goal_is_moved(page, running):
    page.open(running, "browse?results=authors&cell=two-room-salt-paper-seed1&task=3")
    page.named("a", "Act on this task").click()
    page.wait(lambda: page.all("h1") and page.all("h1")[0].text == "Watch a model act")
    page.wait_until_ready()
    page.open(running, page.driver.current_url.split("#/")[1])  # an address that was shared
    assert not is_bounded(page)
    assert "Task 3 of two-room-salt-paper-seed1." in page.all(".lead")[0].text
    page.named("button", "Copy command").click()
    page.wait(lambda: "saltwm play" in page.all("#notice")[0].text)
    for words in ("two-room-paper-seed1.json", "--task 3", "--planner cem"):
        assert words in page.all("#notice")[0].text
    page.click_at(page.all(".pictures .frame")[2], 0.2, 0.2)
    page.wait(lambda: "goal=" in page.driver.current_url)
    assert "cell=" not in page.driver.current_url
    assert "bounded=0" in page.driver.current_url
    assert "Task" not in page.all(".lead")[0].text
    page.open(running, page.driver.current_url.split("#/")[1])
    assert not is_bounded(page)


def test_zero_and_large_numbers_of_an_address_are_taken_as_they_are(page, running):
    page.open(running, "act?model=two-room-salt&planner=cem&seed=0&horizon=20&look=5")
    for words in ("seed=0", "horizon=20", "look=5"):
        assert words in page.driver.current_url
    page.open(running, "act?model=two-room-salt&planner=cem&seed=1.5&horizon=x&look=")
    for words in ("horizon=5", "look=1"):  # what is no whole number is left as it was
        assert words in page.driver.current_url
    assert "seed" not in page.driver.current_url


def test_space_plays_after_a_click_on_the_goal(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton&start=60_130&goal=70_140")
    page.click_at(page.all(".pictures .frame")[2], 92 / 224, 56 / 224)
    assert page.driver.switch_to.active_element.tag_name == "canvas"
    page.press(" ")
    page.wait(lambda: "Reached in" in page.all("[role=status].small")[0].text)


@pytest.mark.parametrize("view", ["browse?cell=two-room-salt-clean-seed1&task=0", "data"])
def test_a_row_that_was_chosen_with_enter_keeps_the_focus_and_space_plays(page, running, view):
    from selenium.webdriver.common.keys import Keys

    page.open(running, view)
    page.wait(lambda: page.all(".scrub output")[0].text != "0 / 0")
    row = "document.querySelectorAll('tbody tr')[3]"  # by a script, because the table is built again meanwhile
    page.driver.execute_script(f"{row}.focus()")
    page.press(Keys.ENTER)
    page.wait(lambda: page.driver.execute_script(f"return {row}.ariaSelected === 'true'"))
    page.wait_until_ready()
    assert page.driver.execute_script(f"return document.activeElement === {row}")
    page.press(" ")
    page.wait(lambda: not page.all(".scrub output")[0].text.startswith("0 /"))


@pytest.mark.parametrize("view", ["browse?cell=two-room-salt-clean-seed1&task=0", "data"])
def test_space_that_is_pressed_while_an_episode_is_on_its_way_plays_it(page, running, view):
    from selenium.webdriver.common.keys import Keys

    page.open(running, view)
    page.wait(lambda: page.all(".scrub output")[0].text != "0 / 0")
    row = "document.querySelectorAll('tbody tr')[3]"
    page.driver.execute_script(f"{row}.focus()")
    (worker,) = running.workers()
    os.kill(worker, signal.SIGSTOP)
    try:
        page.press(Keys.ENTER)
        page.press(" ")
        time.sleep(0.3)  # as long as three steps are shown
        assert page.all(".scrub output")[0].text.startswith("0 /")  # the old one is not played under the new one's name
    finally:
        os.kill(worker, signal.SIGCONT)
    page.wait(lambda: page.driver.execute_script(f"return {row}.ariaSelected === 'true'"))
    page.wait(lambda: not page.all(".scrub output")[0].text.startswith("0 /"))


@pytest.mark.parametrize("view", ["act", "imagine", "map"])
def test_of_two_models_chosen_at_once_the_later_one_is_shown(page, view):
    names = ("push-t-salt", "two-room-salt", "two-room-lewm")
    datasets = ("push-t-data", "two-room-data")
    with exploring(*(ROOT / "checkpoints" / name for name in (*names, *datasets))) as server:
        page.open(server, f"{view}?model=two-room-salt")
        page.wait_until_ready()
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)  # so that the second comes before the first is answered
        page.choose("Model", "push-t-salt")
        page.choose("Model", "two-room-lewm")
        os.kill(worker, signal.SIGCONT)
        page.wait(lambda: "model=two-room-lewm" in page.driver.current_url)
        page.wait_until_ready()
        time.sleep(1)  # whatever the first might still do
        page.wait_until_ready()
        assert "model=two-room-lewm" in page.driver.current_url
        assert page.all("#notice")[0].get_property("textContent") == ""
        if view == "act":
            start = re.search(r"start=([^&]+)", page.driver.current_url)[1]
            assert len(start.split("_")) == 2
        if view == "imagine":
            page.wait(lambda: "by the worker" in page.all("section .spread p[role=status]")[0].text)
        if view == "map":
            assert "two-room-data" in page.all(".panel p.soft")[0].text
        page.driver.get("about:blank")


def test_scrubbing_moves_the_picture_and_the_address(page, running):
    page.open(running, "browse?cell=two-room-salt-clean-seed1&task=0")
    page.wait(lambda: page.all(".scrub output")[0].text.endswith("/ 20"))
    before = page.picture(0)
    page.driver.execute_script(
        "const r = document.querySelector('.scrub input'); r.value = 20; r.dispatchEvent(new Event('input'))"
    )
    assert page.picture(0) != before
    assert "step=20" in page.driver.current_url
    assert page.all(".badge")[0].text == "reached"


def test_two_methods_are_compared_on_the_same_task(page, running):
    page.open(running, "browse?cell=two-room-salt-clean-seed1&task=0&beside=two-room-lewm-clean-seed1")
    page.wait(lambda: len([h for h in page.all("section h3") if h.text.startswith(("salt:", "lewm:"))]) == 2)
    assert "McNemar" in page.all("section p.soft")[0].text
    page.wait(lambda: len(page.all(".pictures canvas")) == 6)


def test_the_keyboard_alone_does_it(page, running):
    from selenium.webdriver.common.keys import Keys

    page.open(running, "browse?cell=two-room-salt-clean-seed1&task=0")
    page.wait(lambda: page.all(".scrub output")[0].text.endswith("/ 20"))
    page.driver.execute_script("document.activeElement.blur()")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.all(".scrub output")[0].text == "2 / 20"
    page.press("x")
    page.wait(lambda: "task=1" in page.driver.current_url)  # the first failure
    page.press("t")
    assert page.driver.execute_script("return document.documentElement.dataset.theme") == "dark"
    page.press("t", "?")
    assert page.all("dialog[open]")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.all("dialog[open]"))  # which keeps the keys to itself
    page.press("5")
    page.wait(lambda: page.all("h1") and page.all("h1")[0].text == "Stored episodes")
    page.wait_until_ready()
    page.press("f")
    page.wait(lambda: "flagged: 0" in page.driver.find_element("tag name", "main").text)
    page.press("1")
    page.wait(lambda: page.all("h1") and page.all("h1")[0].text == "Watch a model act")
    page.wait_until_ready()
    goal = page.all(".pictures canvas")[2]
    before = page.picture(2)
    page.driver.execute_script("arguments[0].focus()", goal)
    page.press(Keys.ARROW_UP, Keys.ARROW_UP)
    page.wait(lambda: page.picture(2) != before)


def test_a_killed_worker_leaves_the_page_as_it_is(page, running):
    page.open(running, "act?model=two-room-salt&planner=gauss-newton&start=60_130&goal=92_56")
    (worker,) = running.workers()
    os.kill(worker, 9)
    page.wait(lambda: "another took over" in page.all("#notice")[0].text)
    page.named("button", "Play").click()
    page.wait(lambda: page.all(".badge"))


@pytest.mark.parametrize("view", ["act", "imagine", "browse", "map", "data"])
def test_a_narrow_screen_scrolls_in_one_direction_only(page, running, view):
    page.resize(375, 800)
    page.open(running, f"{view}?model=two-room-salt")
    wide = page.driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 375


def test_a_narrow_screen_shows_the_world_before_its_settings_and_whole_words_in_tables(page, running):
    page.resize(375, 800)
    page.open(running, "act?model=two-room-salt")
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    world, settings = (page.driver.execute_script(top, selector) for selector in (".pictures", ".panel"))
    assert world < settings
    page.open(running, "browse")
    heights = page.wait(lambda: [row.size["height"] for row in page.all("tbody tr")])
    assert max(heights) < 45  # one line of text


@pytest.mark.parametrize("view", ["act", "imagine", "map"])
def test_an_address_with_a_model_that_is_not_here_says_which_one_is_shown(page, running, view):
    page.open(running, f"{view}?model=two-room-other")
    assert "no model two-room-other" in page.all("#notice")[0].text
    page.open(running, f"{view}?model=two-room-salt")
    assert page.all("#notice")[0].text == ""


def test_the_dotted_line_of_a_distance_is_named(page, running):
    page.open(running, "browse")
    page.wait(lambda: page.all(".legend .dotted"))
    assert page.all(".legend .dotted")[0].text == "reached"
    assert page.all(".chart .limit")


@functools.cache
def axe():
    """axe-core's script, from npm; None where it cannot be had."""
    place = Path(os.environ.get("SALTWM_AXE", ROOT / "work/axe/node_modules/axe-core/axe.min.js"))
    if not place.exists() and shutil.which("npm"):
        command = ["npm", "install", "--silent", "--no-audit", "--prefix", str(place.parents[2]), "axe-core@4.14.0"]
        place.parents[2].mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=False, timeout=120, capture_output=True)
    return place.read_text() if place.exists() else None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, running, theme):
    if axe() is None:
        pytest.skip("axe-core is missing: npm install --prefix work/axe axe-core@4.14.0")
    page.prefer(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
    found = {}
    for view in ("act?model=two-room-salt", "imagine", "browse?cell=two-room-salt-clean-seed1&task=1", "map", "data"):
        page.open(running, view)
        page.driver.execute_script("try { localStorage.removeItem('saltwm-theme') } catch {}")
        page.driver.execute_script(axe())
        report = page.driver.execute_async_script(
            "axe.run(document, {resultTypes: ['violations']}).then(arguments[arguments.length - 1])"
        )
        serious = [v for v in report["violations"] if v["impact"] in ("serious", "critical")]
        found |= {f"{view}: {v['id']}": [node["html"][:120] for node in v["nodes"]] for v in serious}
    assert found == {}


def test_a_list_that_could_not_be_had_is_asked_for_again(page, running):
    page.open(running, "data")
    script = """
        const done = arguments[0];
        import('./world.js').then(async ({ catalogue, live, shared }) => {
          shared.catalogue = null;
          live.ask = () => Promise.reject(new Error('the worker ended 2 times while it answered'));
          const first = await catalogue().catch((error) => error.message);
          delete live.ask;
          done([first, await catalogue().then((found) => found.models.length, (error) => error.message)]);
        });
    """
    assert page.driver.execute_async_script(script) == ["the worker ended 2 times while it answered", 2]


def test_reduced_motion_goes_straight_to_the_end(page, running):
    page.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    page.open(running, "browse?cell=two-room-salt-clean-seed1&task=0")
    page.wait(lambda: page.all(".scrub output")[0].text.endswith("/ 20"))
    page.named(".scrub button", "Play").click()
    assert page.all(".scrub output")[0].text == "20 / 20"


def test_a_hostile_name_is_only_ever_text(page, tmp_path):
    import sys

    sys.path.insert(0, str(ROOT / "tests/promises"))
    from test_report_is_inert import hostile_results

    name = "</title><img src=x onerror=document.title='owned'>"
    with exploring(hostile_results(tmp_path / "results", name)) as server:
        page.open(server, "browse")
        page.wait(lambda: page.all("tbody tr"))
        page.wait(page.all("#notice")[0].is_displayed)  # its task cannot be drawn
        assert name in page.driver.find_element("tag name", "main").text
        assert not page.all("main img")
        assert "owned" not in page.driver.title
        page.driver.get("about:blank")  # before its server ends, of which a page would complain
