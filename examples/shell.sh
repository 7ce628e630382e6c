# The commands of docs/start/shell.md
set -e
glayers score test.npz
glayers fit calibration.npz -o calibrator.safetensors --method temperature
glayers score test.npz --model calibrator.safetensors
glayers apply calibrator.safetensors test.npz -o calibrated.csv
glayers report calibration.npz test.npz --methods temperature,vector -o methods.html
glayers score test.npz --model calibrator.safetensors --fail-if "ks > 3 %"
