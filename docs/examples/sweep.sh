#!/bin/sh
# A hyper-parameter sweep: the dataset is fetched once per host, not once per run.
# Needs: mitosis login. Shows what every run reported.
set -eu

mitosis run --suite "${1:-sweep}" --workers 2 --wait \
    --prep 'printf "1 2 3 4 5\n" > "$MITOSIS_SUITE_DIR/dataset"' \
    --cleanup 'rm -f "$MITOSIS_SUITE_DIR/dataset"' \
    -- sh -c 'read -r a rest < "$MITOSIS_SUITE_DIR/dataset"
              echo "lr={lr} batch={batch} first=$a"' \
    --lr 0.1,0.01 --batch 16..32:16

mitosis tasks list --suite "${1:-sweep}" -o quiet | while read -r task; do
    mitosis tasks logs "$task"
done
