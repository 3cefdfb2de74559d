# A home's dotfiles, kept in a repository.
# make
git init -q -b main
mkdir -p .config/app bin
printf 'alias ll="ls -la"\n' > .bashrc
printf '[user]\n\tname = Someone\n' > .gitconfig
printf 'set number\n' > .vimrc
printf 'theme = dark\n' > .config/app/settings.toml
printf '#!/bin/sh\necho hello\n' > bin/hello
chmod +x bin/hello
printf 'Dotfiles.\n' > README
git add -A
git commit -qm 'Begin'
# day
git status
ls -A
cat .bashrc
cat .vimrc
cat .config/app/settings.toml
sed -i 's/dark/light/' .config/app/settings.toml
git diff
git commit -am 'Light'
printf 'Notes.\n' >> README
git add README && git commit -m 'Notes'
git log --oneline
./bin/hello
sh bin/hello
bash -n .bashrc
git mv README README.md
git commit -m 'Rename'
git switch -c try
printf 'set ruler\n' >> .vimrc
git commit -am 'Ruler'
git switch main
git merge --ff-only try
git branch -d try
git stash list
git diff HEAD~2 --stat
git show HEAD:.bashrc
grep -rn set .vimrc
diff .vimrc .bashrc
wc -l .vimrc .bashrc
git check-ignore -v README.md
git config --get user.name
