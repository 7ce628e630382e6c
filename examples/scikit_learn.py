"""The lines of docs/start/scikit-learn.md."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from glayers import CalibratedClassifier, metrics

X, y = load_breast_cancer(return_X_y=True)  # replace with your own
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

plain = GaussianNB().fit(X_train, y_train)
calibrated = CalibratedClassifier(GaussianNB()).fit(X_train, y_train)
found = {
    "plain": plain.predict_proba(X_test),
    "calibrated": calibrated.predict_proba(X_test),
}
for name, probabilities in found.items():
    print(f"{name}: NLL {metrics.nll(probabilities, y_test):.4f}")
    print(metrics.calibration_test(probabilities, y_test))

from glayers.report.plots import figure

figure("errors", found, y_test).savefig("errors.svg")

from sklearn.frozen import FrozenEstimator

X_fit, X_new, y_fit, y_new = train_test_split(X_test, y_test, random_state=0)
frozen = CalibratedClassifier(FrozenEstimator(plain), "temperature").fit(X_fit, y_fit)
for name, model in (("plain", plain), ("calibrated", frozen)):
    print(f"{name}: NLL {metrics.nll(model.predict_proba(X_new), y_new):.4f}")
