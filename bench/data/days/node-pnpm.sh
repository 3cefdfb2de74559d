# A Node.js workspace of two packages with pnpm.
# needs node pnpm
# make
git init -q -b main
mkdir -p packages/a packages/b
printf 'packages:\n  - "packages/*"\n' > pnpm-workspace.yaml
printf '{"name":"root","private":true,"scripts":{"test":"pnpm -r test"}}\n' > package.json
printf '{"name":"a","version":"1.0.0","main":"index.js","scripts":{"test":"node -e 0"}}\n' > packages/a/package.json
printf 'module.exports = 1;\n' > packages/a/index.js
printf '{"name":"b","version":"1.0.0","scripts":{"test":"node index.js"},"dependencies":{"a":"workspace:*"}}\n' > packages/b/package.json
printf 'console.log(require("a"));\n' > packages/b/index.js
printf 'node_modules/\n' > .gitignore
pnpm install --offline --silent
git add -A
git commit -qm 'Begin'
# day
git status
pnpm --version
pnpm test
pnpm -r test
pnpm install --offline
pnpm install --offline --frozen-lockfile
pnpm ls -r
pnpm --filter b test
pnpm run test
node packages/b/index.js
cat pnpm-lock.yaml
git switch -c two
printf 'module.exports = 2;\n' > packages/a/index.js
pnpm --filter b test
git diff
git commit -am 'Two'
git switch main
git merge --squash two && git commit -m 'Two'
git branch -D two
git log --oneline
find packages -name package.json -not -path '*/node_modules/*'
grep -n version packages/*/package.json
mv packages/a/index.js packages/a/main.js && git mv -k packages/a/main.js packages/a/index.js
git status --short
git checkout -- packages/a/index.js
rm -f packages/a/main.js
pnpm why -r a
