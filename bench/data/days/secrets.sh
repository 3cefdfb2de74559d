# A repository that tracks a secret, and has one that it does not track.
# make
git init -q -b main
mkdir -p app certs
printf 'API_KEY=example-key\nDEBUG=1\n' > .env
printf -- '-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgexample\n-----END PRIVATE KEY-----\n' > certs/server.key
printf -- '-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUexampleexampleexample\n-----END CERTIFICATE-----\n' > certs/ca.pem
printf 'import os\n\nprint(os.environ.get("DEBUG", "unset"))\n' > app/main.py
git add -A
git commit -qm 'Begin'
printf 'LOCAL=1\n' > .env.local
# day
git status
git status --short
git diff
ls -la
python3 app/main.py
cat certs/ca.pem
printf 'print("more")\n' >> app/main.py
git status
git diff
git add -A
git status --short
git commit -m 'More'
git show --stat
git log --stat -2
printf 'print("again")\n' >> app/main.py
git commit -am 'Again'
git stash list
printf 'print("draft")\n' >> app/main.py
git stash
git stash pop
git diff
git restore app/main.py
git switch -c topic
mkdir -p docs && printf 'Docs.\n' > docs/a.md
git add . && git commit -m 'Docs'
git switch main
git merge topic
git branch -d topic
git diff HEAD~1
git ls-files
find . -name '*.py' -not -path './.git/*'
grep -rn print app
tar czf ../out.tgz app
