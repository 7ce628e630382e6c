"""The lines of docs/start/scikit-learn.md."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from glayers import CalibratedClassifier, metrics

X, y = load_breast_cancer(return_X_y=True)  # replace by your own
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

plain = GaussianNB().fit(X_train, y_train)
calibrated = CalibratedClassifier(GaussianNB()).fit(X_train, y_train)
for name, model in (("plain", plain), ("calibrated", calibrated)):
    probabilities = model.predict_proba(X_test)
    print(name, metrics.nll(probabilities, y_test), metrics.calibration_test(probabilities, y_test))

from sklearn.frozen import FrozenEstimator

X_calibration, X_new, y_calibration, y_new = train_test_split(X_test, y_test, random_state=0)
frozen = CalibratedClassifier(FrozenEstimator(plain), "temperature").fit(X_calibration, y_calibration)
print(metrics.nll(plain.predict_proba(X_new), y_new), "->", metrics.nll(frozen.predict_proba(X_new), y_new))
