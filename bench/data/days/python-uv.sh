# A Python package that uv manages, offline.
# needs uv
# make
git init -q -b main
mkdir -p src/words tests
printf '[project]\nname = "words"\nversion = "0.1.0"\nrequires-python = ">=3.11"\ndependencies = []\n\n[tool.uv]\npackage = false\n' > pyproject.toml
printf '"""Words."""\n\n\ndef count(text):\n    return len(text.split())\n' > src/words/__init__.py
printf 'import sys\nimport unittest\n\nsys.path.insert(0, "src")\nfrom words import count\n\n\nclass Words(unittest.TestCase):\n    def test_count(self):\n        self.assertEqual(count("a b"), 2)\n' > tests/test_words.py
printf '.venv/\n__pycache__/\n' > .gitignore
uv lock -q --offline
uv sync -q --offline
git add -A
git commit -qm 'Begin'
# day
git status --short
uv --version
uv tree --offline
uv sync --offline
uv run --offline python -m unittest discover -s tests
uv run --offline python -c 'print(1)'
uv pip list --offline
cat uv.lock
ls src tests
sed -n 1,20p src/words/__init__.py
git checkout -b longest
printf '\n\ndef longest(text):\n    return max(text.split(), key=len)\n' >> src/words/__init__.py
git diff
git add src
git commit -m 'Add longest'
uv run --offline python -m unittest discover -s tests 2>&1 | tail -3
.venv/bin/python -m unittest discover -s tests
uv lock --offline --check
git log --oneline --graph --all
git checkout main
git rebase longest
git branch -D longest
git show HEAD:pyproject.toml
head -3 pyproject.toml | sort | uniq -c
touch notes.md && git add notes.md && git commit -qm 'Notes'
git commit --amend -m 'Add notes'
git reset --soft HEAD~1
git status
git commit -m 'Add notes again'
du -sh src
