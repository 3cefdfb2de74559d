# A repository with a submodule in which one commits too.
# make
git init -q -b main ../library
(cd ../library && printf 'LIB = 1\n' > lib.py && git add -A && git commit -qm 'Library')
git init -q -b main
git -c protocol.file.allow=always submodule add -q ../library vendor/library
printf 'import sys\n\nsys.path.insert(0, "vendor/library")\nfrom lib import LIB\n\nprint(LIB)\n' > main.py
git add -A
git commit -qm 'Begin'
# day
git status
git submodule status
python3 main.py
git log --oneline
cd vendor/library && git status
cd vendor/library && git log --oneline
cd vendor/library && git switch -c wider
printf 'WIDE = 2\n' >> vendor/library/lib.py
git status
git diff
git diff --submodule
cd vendor/library && git diff
cd vendor/library && git commit -am 'Widen'
git -C vendor/library log --oneline
git -C vendor/library status
git add vendor/library
git commit -m 'Use the wider library'
git show --stat
git submodule foreach 'git status'
git ls-files -s vendor
cat .gitmodules
printf 'print("end")\n' >> main.py
git commit -am 'End'
git submodule update
git stash list
git switch -c topic
git switch main
git branch -d topic
git -C vendor/library branch
