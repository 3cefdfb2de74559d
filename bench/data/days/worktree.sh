# A linked worktree below .claude/worktrees, as coding agents make them.
# work .claude/worktrees/fix
# make
git init -q -b main
mkdir -p src
printf 'value = 1\n' > src/value.py
printf '.claude/\n__pycache__/\n' > .gitignore
git add -A
git commit -qm 'Begin'
git worktree add -q .claude/worktrees/fix -b fix
# day
git status
git branch
git branch --show-current
git worktree list
git log --oneline
cat src/value.py
printf 'other = 2\n' >> src/value.py
git diff
git add src/value.py
git commit -m 'Add other'
git log --oneline main..fix
git diff main...HEAD
python3 -c 'import sys; sys.path.insert(0, "src"); import value; print(value.other)'
printf 'third = 3\n' >> src/value.py
git commit -am 'Add third'
git commit --amend --no-edit
git stash list
printf 'draft\n' > draft.txt
git status --porcelain
git add draft.txt && git stash && git stash pop
git reset -q
rm draft.txt
git tag fix-1
git rebase main
git show HEAD --stat
git reset --hard HEAD
git log main -1
git switch -c fix-more
git commit --allow-empty -m 'Nothing'
git switch fix
git merge fix-more
git branch -d fix-more
git rev-parse HEAD
git reflog -3
