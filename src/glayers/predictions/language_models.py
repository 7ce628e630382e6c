"""Records of a language model's log -> a score for each option of a question, the right option, and the document.

A record is a JSON object per question, in one of these forms, which its keys show:

- plain: `logprobs`, `logits` or `probabilities` as a list or by name, or `confidence` and `correct`;
- an answer of an OpenAI or vLLM server with `top_logprobs`, from completions, chat or a batch;
- a sample of Inspect, a detail of lighteval, or a line of lm-evaluation-harness.

Questions may have different numbers of options: the missing ones are impossible. A record that may mean two things is
refused.
"""

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from glayers.arrays import Array
from glayers.checks import check_probabilities
from glayers.errors import BadFile, GlayersWarning, listed, shown
from glayers.files import check_size, errors_as_bad_file
from glayers.predictions.contents import (
    KEYS,
    SCORES,
    Contents,
    Reading,
    contents_of,
    keys_by_field,
    keys_of_fields,
    real_numbers,
)
from glayers.predictions.predictions import warn_of_certainty
from glayers.text_tables import plural

_LINE_KEYS = {key: name for key, name in KEYS.items() if name != "class_names"} | {"answer": "labels"}
_LOG_KEYS = ("log_probabilities", "logprobs", "log_likelihoods")
_HARNESS = "filtered_resps"  # the key that only logs of the harness have
_LEAST_PROBABILITY = 1e-12  # of an option that a question has
_FOR_ALL = "as options= (on the command line --options A,B,C,D)"
_GENERATED = "holds generated text, not log-probabilities of choices; write confidence and correct instead"
_MARKS = " \t\r\n▁Ġ.,:;()[]*\"'`"  # tokenizers write a space in front of a word as ▁ or Ġ
_ALONE = "ask the model for the option alone"
_PREFIXES = ("", "answer")  # Inspect asks a model to begin with ANSWER:
_ROUNDING = 0.01  # of log-probabilities, which servers may compute with three digits
_NOT_RETURNED = -9999.0  # what OpenAI writes for the sampled token if it is not among the likeliest
_LEAST_LEFT = 1e-6  # what all returned tokens leave is not known better
_Tops: TypeAlias = Iterable[tuple[str, Any]]  # the likeliest tokens, with log-probabilities


@dataclass(frozen=True)
class _Row:
    """One question: its fields by name, other columns, the names of its options, and how many scores were assumed."""

    fields: dict[str, Any]
    others: dict[str, Any]
    options: tuple[str, ...] = ()
    n_assumed: int = 0
    by_name: bool = False  # the names, not their order, say which options of different questions are the same

    @property
    def kind(self) -> str:
        """What all lines must have in common."""
        kind = listed(sorted(self.fields))
        if self.by_name:
            kind += ", scores by name"
        if isinstance(self.fields.get("labels"), list):
            kind += ", a list of labels"
        return kind


def contents_of_records(records: Iterable[tuple[str, Any]], reading: Reading) -> Contents:
    """Return the contents of a log, given where each record stands, read or as a line of JSON."""
    rows: list[_Row] = []
    places: list[str] = []
    for where, given in records:
        with errors_as_bad_file(where, way_out=f", or remove {where} to read the rest"):
            record = json.loads(given) if isinstance(given, bytes) else given
            row = _row_of(record, reading)
        if not rows:
            first = record
        elif row.kind != rows[0].kind:
            _refuse_mixture(rows[0], places[0], row, where)
        if _HARNESS in record and record.get("filter") != first.get("filter"):
            continue  # a harness writes every question once for each filter; the first filter is read
        rows.append(row)
        places.append(where)
    if not rows:
        raise BadFile("holds no line with logprobs and label, or with confidence and correct")
    _warn_of_assumed(rows)
    fields: dict[str, Any] = {name: [row.fields[name] for row in rows] for name in rows[0].fields}
    names = _common_names(rows)
    column_of = {option: column for column, option in enumerate(names)}
    for name in fields.keys() & set(SCORES):
        columns: list[Sequence[int]] = [range(len(scores)) for scores in fields[name]]
        if rows[0].by_name:
            columns = [[column_of[option] for option in row.options] for row in rows]
        fields |= _without_missing(name, padded(fields.pop(name), np.nan, columns))
        if "labels" in fields and not isinstance(fields["labels"][0], list):
            fields["labels"] = [own[label] for own, label in zip(columns, fields["labels"], strict=True)]
    if names:
        fields["class_names"] = list(names)
    keys = dict.fromkeys(key for row in rows for key in row.others if reading.others)
    others = {key: [row.others.get(key) for row in rows] for key in keys}
    return contents_of(fields, reading, others, lambda name, row: f"{places[row]}: {name}")


def _refuse_mixture(first: _Row, place_of_first: str, row: _Row, where: str) -> None:
    """Refuse a line of another kind than the first; of a field that one of them lacks, name this one."""
    problem = f"has {row.kind}, but earlier lines have {first.kind}; write all alike"
    for name in sorted(first.fields.keys() ^ row.fields.keys())[:1]:
        where = where if name in first.fields else place_of_first
        problem = f"has no {name.replace('labels', 'answer (or label)')}, as other lines have: add it"
    raise BadFile(f"{where}: {problem}, or remove {where} to read the rest")


def _warn_of_assumed(rows: list[_Row]) -> None:
    n_rows = sum(row.n_assumed > 0 for row in rows)
    if n_rows:
        warnings.warn(
            f"in {plural(n_rows, 'question')} of {len(rows):,}, an option is not among the returned tokens, and taken "
            f"to be as likely as it can be. Ask for more top_logprobs to know it",
            GlayersWarning,
            stacklevel=2,
        )


def _common_names(rows: list[_Row]) -> tuple[str, ...]:
    """Return all names of options that go by name, or else the longest list that begins with every other one."""
    if rows[0].by_name:
        names = sorted({option for row in rows for option in row.options})
        words = {_word(name).casefold() for name in names}
        if len(words) < len(names):
            raise BadFile(
                f"the names {listed(names)} are one word in several forms, as tokens are: give the options {_FOR_ALL}"
            )
        return tuple(names)
    longest = max((row.options for row in rows), key=len)
    if all(row.options and row.options == longest[: len(row.options)] for row in rows):
        return longest
    return ()


def padded(rows: Sequence[Array], padding: float, columns: Sequence[Sequence[int]] = ()) -> Array:
    """Return rows of different lengths as an array: from its first column on, or in the given columns of each row."""
    columns = columns or [range(len(row)) for row in rows]
    widest = 1 + max(map(max, columns))
    check_size(8 * widest * len(rows))
    scores = np.full((len(rows), widest), padding)
    for number, row in enumerate(rows):
        scores[number, columns[number]] = row
    return scores


def _without_missing(name: str, scores: Array) -> dict[str, Array]:
    """Return logits of -inf where a question lacks an option: by calibration, a probability of 0 could become more."""
    missing = np.isnan(scores)
    if name == "logits" or not missing.any():
        return {name: np.where(missing, -np.inf, scores)}
    checked = check_probabilities(np.where(missing, 0.0, scores))
    warn_of_certainty((checked <= 0) & ~missing, "probabilities are exactly 0")
    return {"logits": np.where(missing, -np.inf, np.log(np.clip(checked, _LEAST_PROBABILITY, 1.0)))}


def _row_of(record: Any, reading: Reading) -> _Row:
    """Return one question of any form."""
    if not isinstance(record, dict):
        raise BadFile(f"must be a JSON object; got {shown(record)}")
    if _HARNESS in record:
        return _harness_row(record)
    if isinstance(record.get("model_response"), dict):
        return _lighteval_row(record)
    if isinstance(record.get("output"), dict):
        return _inspect_row(record, reading)
    response = record.get("response", record)
    failure = record.get("error")
    if isinstance(response, dict):  # as in a batch
        if response.get("status_code", 200) != 200:
            failure = failure or response
        response = response.get("body", response)
    if failure and record.get("custom_id"):
        raise BadFile(f"is a request that failed, with {str(failure)[:300]}; ask again")
    if isinstance(response, dict) and isinstance((_values(response.get("choices")) or [None])[0], dict):
        return _server_row(record, response, reading)
    return _plain_row(record, reading)


def _plain_row(record: dict[str, Any], reading: Reading) -> _Row:
    """Return a line with the keys of an `.npz`, in the singular or not, and scores as a list or by name."""
    keys = keys_of_fields(record, _LINE_KEYS)
    fields = {name: record[key] for name, key in keys.items()}
    name = next(iter(fields))  # the scores come first
    scores = fields[name]
    if name not in SCORES:
        return _Row(fields, _others(record))
    names = tuple(map(str, _values(record.get("class_names"))))
    by_name = isinstance(scores, dict)
    if by_name:
        options = _options(record, reading)
        if options and name == "logits":
            answered, n_assumed = _answered(record, scores.items(), "", options)
            return _Row(fields | answered, _others(record), options, n_assumed)
        names = tuple(scores)
        scores = list(scores.values())
    fields[name] = _scores(keys[name], scores)
    if keys[name] in _LOG_KEYS and fields[name].max() > _ROUNDING:
        raise BadFile(f"{keys[name]} must not be above 0; got {shown(scores)}: name other scores logits")
    label = fields.get("labels")
    if not isinstance(label, list):  # 0 or 1, or a probability, of each class
        if "labels" in fields:
            choices = names or _values(record.get("choices"))
            fields["labels"] = _place(label, len(scores), choices, is_name=by_name or label in names)
    elif by_name:
        raise BadFile("has a list of labels for scores by name; give the scores as a list too")
    return _Row(fields, _others(record), names, by_name=by_name)


def _others(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what means nothing here, and is written again."""
    return {key: value for key, value in record.items() if key not in {*_LINE_KEYS, "class_names", _HARNESS}}


def _server_row(record: dict[str, Any], response: dict[str, Any], reading: Reading) -> _Row:
    """Return the answer of a server, with the options and the label that the user has added."""
    options = _options(record, reading)
    token, tops = _step_of_answer(response, options)
    fields, n_assumed = _answered(record, tops, token, options)
    return _Row(fields, _simple(record, _LINE_KEYS), options, n_assumed)


def _inspect_row(record: dict[str, Any], reading: Reading) -> _Row:
    """Return a sample of Inspect, whose options are letters unless others are given."""
    letters = [chr(ord("A") + number) for number in range(len(_values(record.get("choices"))))]
    options = _options({"options": letters} if letters and reading.options is None else {}, reading)
    token, tops = _step_of_answer(record["output"], options)
    chosen = _option_of(token, options)
    for score in _values(record.get("scores")):
        answer = _option_of(str(score.get("answer")), options) if isinstance(score, dict) else None
        if answer not in (None, chosen):
            raise BadFile(
                f"the tokens say {chosen!r}, but the scorer read {answer!r}: run the task without shuffling choices"
            )
    fields, n_assumed = _answered({"answer": record.get("target")}, tops, token, options)
    if record.get("id") is not None:
        fields["groups"] = record["id"]  # epochs ask the same question again
    return _Row(fields, _simple(record, {"target"}), options, n_assumed)


def _lighteval_row(record: dict[str, Any]) -> _Row:
    """Return a detail of lighteval, which has a log-probability of each choice."""
    document = record.get("doc")
    if not isinstance(document, dict):
        raise BadFile("has a model_response without doc; give the details that lighteval wrote")
    scores = _scores("logprobs of model_response", record["model_response"].get("logprobs"))
    if len(scores) != len(_values(document.get("choices"))) or len(scores) < 2:
        raise BadFile(_GENERATED)
    label = _place(document.get("gold_index"), len(scores))
    metric = record.get("metric")
    _refuse_other_accuracy(scores, label, metric.get("acc") if isinstance(metric, dict) else None)
    return _Row({"logits": scores, "labels": label}, _simple(document, ()) | _simple(record, ()))


def _harness_row(record: dict[str, Any]) -> _Row:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = _values(record[_HARNESS])
    if len(answers) < 2 or not all(isinstance(answer, list) and len(answer) == 2 for answer in answers):
        raise BadFile(_GENERATED)
    scores = _scores(_HARNESS, [score for score, _ in answers])
    requested = [[*_values(request), None, None][1] for request in _values(record.get("arguments"))]
    label = _place(record.get("target"), len(scores), requested)
    _refuse_other_accuracy(scores, label, record.get("acc"))
    fields = {"logits": scores, "labels": label}
    for key in ("doc_id", "doc_hash"):
        if record.get(key) is not None:
            fields["groups"] = record[key]
    return _Row(fields, _others(record))


def _refuse_other_accuracy(scores: Array, label: int, accuracy: Any) -> None:
    """Refuse a task that scores its answers in another way, such as by log-likelihood per character."""
    best = np.flatnonzero(scores == scores.max())
    is_known = isinstance(accuracy, int | float)
    if len(best) == 1 and is_known and (best[0] == label) != (accuracy == 1):
        raise BadFile(
            f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}: the "
            f"task scores otherwise; write lines with logprobs and label instead"
        )


def _options(record: dict[str, Any], reading: Reading) -> tuple[str, ...]:
    """Return the options of a question: those of its line, or else those given for all lines."""
    given = record.get("options", reading.options)
    if given is None:
        return ()
    options = tuple(_word(str(option)) for option in _values(given) or given)
    if len(options) < 2 or len(set(options)) != len(options) or "" in options:
        raise BadFile(f"options must be at least two different words; got {shown(given)}")
    return options


def _answered(record: dict[str, Any], tops: _Tops, chosen: str, options: tuple[str, ...]) -> tuple[dict[str, Any], int]:
    """Return the scores of all options with what the user has added, and how many scores were assumed."""
    scores, n_assumed = _option_scores(tops, chosen, options)
    fields: dict[str, Any] = {"logits": scores}
    for name, key in keys_by_field(record, _LINE_KEYS).items():
        value = record[key]
        if name == "labels" and value is not None:
            are_numbers = all(option.isdecimal() for option in options)  # 2 means the option named 2
            fields[name] = _place(value, len(options), options, is_name=are_numbers)
        elif name in ("weights", "groups", "counts"):
            fields[name] = value
    return fields, n_assumed


def _step_of_answer(response: dict[str, Any], options: tuple[str, ...]) -> tuple[str, _Tops]:
    """Return the token that names the option, and the likeliest tokens in its place."""
    if not options:
        raise BadFile(f"says nowhere which options there are; give them as a list under `options`, or {_FOR_ALL}")
    choices = response.get("choices") or [{}]
    if len(choices) > 1:
        raise BadFile(f"has {len(choices)} answers to one question; ask for one (n=1)")
    logprobs = choices[0].get("logprobs") or {}
    tokens = logprobs.get("tokens") or []
    tops = [list((top or {}).items()) for top in logprobs.get("top_logprobs") or [None] * len(tokens)]
    steps = logprobs.get("content")  # of a chat
    if steps:
        tokens = [step["token"] for step in steps]
        tops = [[(top["token"], top["logprob"]) for top in step.get("top_logprobs") or ()] for step in steps]
    if not tokens or not all(tops):
        raise BadFile("has no top_logprobs; ask the server for logprobs and as many top_logprobs as it gives")
    place = _place_of_answer(tokens, options)
    rest = "".join(tokens[place + 1 :])
    _refuse_beginning(tokens[place], rest, [token for token, _ in tops[place]], options)
    return tokens[place], tops[place]


def _place_of_answer(tokens: list[str], options: tuple[str, ...]) -> int:
    """Return which token names the option: that of the first word, or of the first one after ANSWER."""
    said = ""
    for place, token in enumerate(tokens):
        if said.casefold() in _PREFIXES and _option_of(token, options):
            return place
        said = _word(said + token)
    raise BadFile(
        f"the answer must begin with one of the options {listed(options)}, not {shown(''.join(tokens))}; {_ALONE}"
    )


def _refuse_beginning(token: str, rest: str, returned: list[str], options: tuple[str, ...]) -> None:
    """Refuse a token that the next one continues, or whose continuation as another option is not known."""
    unseen = set(options) - {_option_of(other, options) for other in (token, *returned)}
    begins = any(option.casefold().startswith(_word(token).casefold()) for option in unseen)
    goes_on = token[-1:].isalnum() and rest.replace("Ġ", " ")[:1].isalnum()  # as in "A" and "pple"
    if goes_on or (begins and not rest):
        raise BadFile(f"the token {shown(token)} may be the beginning of another word; {_ALONE}")


def _option_scores(tops: _Tops, chosen: str, options: tuple[str, ...]) -> tuple[Array, int]:
    """Return a log-probability of each option from those of the likeliest tokens, and how many were not among them.

    An option that was not returned is at most as likely as the last token returned, and as all tokens that were not
    returned; it gets the lower of the two. A sampled token may be returned although it is less likely, so it does not
    count as the last.
    """
    tokens = dict.fromkeys(tops)  # a server may return one twice
    given = _scores("log-probabilities", [score for _, score in tokens])
    top = [(token, score) for (token, _), score in zip(tokens, given.tolist(), strict=True) if score > _NOT_RETURNED]
    names = listed(token for token, _ in top)
    total = np.logaddexp.reduce([score for _, score in top])
    if total > _ROUNDING:
        raise BadFile(
            f"the tokens {names} have probabilities that sum to {np.exp(total):.3g}: these are no log-probabilities"
        )
    chances: dict[str, float] = {}
    for token, score in top:
        option = _option_of(token, options)
        if option is not None:
            chances[option] = float(np.logaddexp(chances.get(option, -np.inf), score))
    if not chances:
        raise BadFile(f"none of the options {listed(options)} is among the tokens {names}")
    left = float(np.log(max(1 - np.exp(total), _LEAST_LEFT)))
    lowest = min([left, *(score for token, score in top if token != chosen)])
    return np.array([chances.get(option, lowest) for option in options]), len(options) - len(chances)


def _option_of(token: str, options: tuple[str, ...]) -> str | None:
    """Return the option that a token names; case counts for single letters, since "a" is a word.

    >>> _option_of(" (A)", ("A", "B")), _option_of("a", ("A", "B")), _option_of("▁Yes.", ("yes", "no"))
    ('A', None, 'yes')
    """
    word = _word(token)
    if word in options:
        return word
    same = [option for option in options if len(word) > 1 and option.casefold() == word.casefold()]
    return same[0] if len(same) == 1 else None


def _word(token: str) -> str:
    """Return a token without the blanks and marks around it."""
    return token.strip(_MARKS)


def _simple(record: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return what is text or a number, such as an id, but not the long parts of a log."""
    return {key: value for key, value in record.items() if key not in known and not isinstance(value, dict | list)}


def _scores(name: str, values: Any) -> Array:
    """Return a number for each choice; a harness writes them as text."""
    given = values if isinstance(values, list) and bool not in map(type, values) else []
    scores = real_numbers(given, name)
    if scores.ndim != 1 or not scores.size or np.isnan(scores).any():
        raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(values)}")
    return scores


def _values(arguments: object) -> list[Any]:
    """Return a list of arguments, which newer logs write as an object."""
    if isinstance(arguments, dict):
        return list(arguments.values())
    return arguments if isinstance(arguments, list) else []


def _place(target: Any, n_choices: int, texts: Sequence[Any] = (), is_name: bool = False) -> int:
    """Return the number of the right choice, given by its text, its number or its letter; a name is a text."""
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    word = str(target).strip()
    choices = [str(text).strip() for text in texts]
    same = [place for place, choice in enumerate(choices) if choice == word]
    same = same or [place for place, choice in enumerate(choices) if choice.casefold() == word.casefold()]
    letter = word.strip("().:").upper()
    named_by_letters = any(len(choice) == 1 and choice.isalpha() for choice in choices)
    places = set(same)
    if not is_name and word.isdecimal():
        places.add(int(word))
    elif not is_name and not same and not named_by_letters and len(letter) == 1:
        places.add(ord(letter) - ord("A"))
    possible = places & set(range(n_choices))
    if len(possible) == 1 and isinstance(target, str | int):
        return possible.pop()
    if len(possible) > 1:
        raise BadFile(f"the answer {shown(target)} means the choices {sorted(possible)}; give the letter of one")
    of = f": {listed(choices)}" if choices else ""
    raise BadFile(f"the answer {shown(target)} is not one of the {n_choices} choices, by number, letter or text{of}")
