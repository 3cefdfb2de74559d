# A Python package with a virtual environment, tests and a wheel that lies beside it.
# make
git init -q -b main
mkdir -p src/orders tests wheels
printf '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n[project]\nname = "orders"\nversion = "1.0"\n' > pyproject.toml
printf '"""Orders."""\n\n\ndef total(prices):\n    """Return the sum."""\n    return sum(prices)\n' > src/orders/__init__.py
printf 'import unittest\n\nfrom orders import total\n\n\nclass Totals(unittest.TestCase):\n    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n' > tests/test_total.py
printf '.venv/\n__pycache__/\n*.egg-info/\nbuild/\ndist/\n' > .gitignore
printf '# Orders\n\nA small package.\n' > README.md
python3 -m venv .venv
echo "$PWD/src" > "$(echo .venv/lib/python3*/site-packages)/orders.pth"
git add -A
git commit -qm 'Begin'
# day
git status
git log --oneline -5
ls -la
cat pyproject.toml
grep -rn "def " src
rg -n total src || grep -rn total src
find . -name '*.py' -not -path './.venv/*'
git switch -c feature/discount
.venv/bin/python -m unittest discover -s tests
source .venv/bin/activate && python -m unittest discover -s tests
sed -i 's/Return the sum/Return the sum of all prices/' src/orders/__init__.py
printf '\n\ndef discount(price, percent):\n    """Return a price with a discount."""\n    return price * (100 - percent) / 100\n' >> src/orders/__init__.py
git diff
git diff --stat
printf 'import unittest\n\nfrom orders import discount\n\n\nclass Discounts(unittest.TestCase):\n    def test_half(self):\n        self.assertEqual(discount(10, 50), 5)\n' > tests/test_discount.py
.venv/bin/python -m unittest discover -s tests -v 2>&1 | tail -5
.venv/bin/python -c "import orders; print(orders.total([1, 2]))"
python3 -m compileall -q src
python3 -m json.tool < /dev/null
git add -A
git commit -m 'Add a discount'
git show --stat HEAD
git log --format='%an <%ae>' -1
git switch main
git merge --no-ff feature/discount -m 'Merge the discount'
git branch -d feature/discount
git tag v1.1
git stash list
echo 'draft' >> README.md && git stash && git stash pop
git restore README.md
.venv/bin/pip list
.venv/bin/pip --version
wc -l src/orders/*.py tests/*.py
for f in tests/*.py; do python3 -m py_compile "$f"; done
mkdir -p docs && cp README.md docs/index.md && git add docs && git commit -qm 'Add docs'
git rev-parse --abbrev-ref HEAD
