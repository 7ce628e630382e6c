"""Small stand-ins of the public repositories become the sets of our tables; nothing else passes as one of them."""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.accuracy import prepare_logits
from experiments.accuracy.prepare_logits import SETS, halved, main, prepare
from experiments.logit_files import checksum, read_both

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(11, 6)).astype(np.float32)
LABELS = RNG.integers(0, 6, 11)
ORDER = np.random.default_rng(0).permutation(11)


def save(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))


def make_clones(root: Path) -> None:
    """Write what each repository holds, with the folders, names and types of its own code."""
    both = ((LOGITS, LABELS[:, None]), (-LOGITS, LABELS[:, None]))
    save(root / "NN_calibration/logits/probs_densenet40_c10_logits.p", both)
    save(root / "SCTL/datasets/probs_resnet110_c10_LT_logits.p", both)
    save(root / "SCTL/datasets/probs_resnet110_SD_c10_LT_logits.p", both)
    for name in ("cifar10_resnet110", "cifar10_resnet50", "cifar100_resnet110", "cifar100_densenet121"):
        folder = root / "df-posthoc-calibration/data" / name
        folder.mkdir(parents=True)
        np.save(folder / "val_logits.npy", LOGITS)
        np.savetxt(folder / "test_logits", -LOGITS)
        np.savetxt(folder / "val_labels", LABELS)
        np.savetxt(folder / "test_labels", LABELS)
    models = ("logits_c10resnet20", "logits_cifar100_resnet20", "pretrained_logits/logits_cifar100_vgg16_bn")
    for name in models:
        save(root / f"wasscal/data/{name}_pretrainedcy.p", [LOGITS, LABELS])
    answers = [{"id": 100 + number, "answer": "ABCDEF"[label]} for number, label in enumerate(LABELS)]
    questions = root / "LLM-Uncertainty-Bench/data/emotion_10k_4.json"
    questions.parent.mkdir(parents=True)
    questions.write_text(json.dumps(answers[::-1]))
    for prompt in ("base", "shared", "task"):
        for shots in ("icl0", "icl1"):
            name = f"outputs_base/Llama-2-13b-hf_emotion_10k_4_{prompt}_{shots}.pkl"
            factor = 1 if (prompt, shots) == ("shared", "icl1") else 2
            outputs = [{"id": 100 + row, "logits_options": factor * LOGITS[row]} for row in range(11)]
            save(root / "LLM-Uncertainty-Bench" / name, outputs)
    pictures = [{"id": row, "answer": "ABCDEF"[LABELS[row]], "logits": LOGITS[row]} for row in range(11)]
    for name in ("Qwen-VL", "Qwen-VL-Chat"):
        save(root / f"VLM-Uncertainty-Bench/output/{name}/mmbench.pkl", pictures)
    published = root / "label-errors"
    for part in ("cross_validated_predicted_probabilities", "original_test_labels"):
        (published / part).mkdir(parents=True)
    chances = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    np.save(published / "cross_validated_predicted_probabilities/imdb_test_set_pyx.npy", chances)
    np.save(published / "original_test_labels/imdb_test_set_original_labels.npy", LABELS.astype(np.uint16))


def test_every_repository_is_read(tmp_path: Path) -> None:
    make_clones(tmp_path)
    for name in SETS:
        parts, _ = prepare(name, tmp_path, "")
        assert parts is not None, name
        calibration, test = parts
        assert calibration.logits.dtype == np.float32
        if len(test) == 11:  # published in two parts
            assert (calibration.logits == LOGITS).all()
            assert (test.logits == -LOGITS).all()
            assert calibration.labels.tolist() == test.labels.tolist() == LABELS.tolist()
        else:
            assert calibration.labels.tolist() == LABELS[ORDER[:5]].tolist()
            assert test.labels.tolist() == LABELS[ORDER[5:]].tolist()
    reviews, _ = prepare("imdb2_text", tmp_path, "")
    assert reviews is not None
    assert reviews[0].probabilities() == pytest.approx(
        np.exp(LOGITS)[ORDER[:5]] / np.exp(LOGITS).sum(1)[ORDER[:5], None], abs=1e-4
    )


def test_of_several_files_the_one_with_the_checksum_is_taken(tmp_path: Path) -> None:
    make_clones(tmp_path)
    wanted = checksum(halved(LOGITS, LABELS))
    parts, said = prepare("emotion6_llama2_13b", tmp_path, wanted)
    assert parts is not None
    assert checksum(parts) == wanted
    assert said.endswith("from Llama-2-13b-hf_emotion_10k_4_shared_icl1.pkl")


def test_the_command_says_what_differs_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_clones(tmp_path / "clones")
    (tmp_path / "clones/SCTL").rename(tmp_path / "elsewhere")
    (tmp_path / "clones/NN_calibration/logits/probs_densenet40_c10_logits.p").write_text("version https://git-lfs")
    wanted = checksum(halved(LOGITS, LABELS))
    about = tmp_path / "about.csv"
    about.write_text("set,sha256\n" + "".join(f"{name},{wanted}\n" for name in SETS))
    monkeypatch.setattr(prepare_logits, "ABOUT", about)
    made = tmp_path / "made"
    monkeypatch.setattr(sys, "argv", ["", "--clones", str(tmp_path / "clones"), "--logits", str(made)])
    assert main() == 1
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert said["cifar100_vgg16"].startswith("equal to the set of our tables")
    assert said["cifar10_resnet110"].startswith("DIFFERS")
    assert said["cifar10_longtail_resnet110"].startswith("left out: there is no clone")
    assert said["cifar10_densenet40_paper"].startswith("left out: cannot be read")
    assert checksum(read_both(made / "cifar100_vgg16.npz")) == wanted
    assert not (made / "cifar10_longtail_resnet110.npz").exists()


def test_every_set_of_our_tables_can_be_made_but_one() -> None:
    names = [line.partition(",")[0] for line in prepare_logits.ABOUT.read_text(encoding="utf-8").splitlines()[1:]]
    assert set(names) - set(SETS) == {"tinyimagenet200_efficientnet_lite0"}
