# The commands of docs/start/shell.md
set -e
glayers score test.npz
glayers fit calibration.npz -o model.safetensors --method temperature
glayers score test.npz --model model.safetensors
glayers apply model.safetensors test.npz -o calibrated.csv
glayers report calibration.npz test.npz --methods temperature,vector -o report.html
glayers score test.npz --model model.safetensors --fail-if "ks > 3 %"
