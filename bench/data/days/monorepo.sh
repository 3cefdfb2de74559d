# Work in one directory of a repository: the workspace is services/api.
# work services/api
# make
git init -q -b main
mkdir -p services/api services/web libs/common
printf 'def greet(name):\n    return f"hello {name}"\n' > libs/common/greet.py
printf 'import sys\n\nsys.path.insert(0, "../../libs/common")\nfrom greet import greet\n\nprint(greet("api"))\n' > services/api/main.py
printf 'print("web")\n' > services/web/main.py
printf 'TOKEN=example-token\n' > services/web/.env
printf '.env\n__pycache__/\n' > .gitignore
printf 'all:\n\tpython3 main.py\n' > services/api/Makefile
git add -A
git commit -qm 'Begin'
# day
git status
git status --short
git log --oneline -- .
ls
cat main.py
python3 main.py
make
cat ../../libs/common/greet.py
grep -rn greet ../../libs
git rev-parse --show-toplevel
git ls-files
git ls-files :/
printf '# More.\n' >> main.py
git diff
git diff --stat :/
git add -A
git commit -m 'Note'
git log -1 --stat
git show HEAD --name-only
git commit --amend -m 'Note more'
git switch -c side
printf 'x = 1\n' > extra.py
git add extra.py
git commit -m 'Extra'
git switch main
git merge side
git branch -d side
git blame main.py
git stash list
printf 'y\n' >> extra.py && git stash push extra.py && git stash pop
git restore extra.py
git tag api-1
git grep -n greet
