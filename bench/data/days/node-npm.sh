# A Node.js package with npm, its tests and one dependency that is vendored.
# needs node npm
# make
git init -q -b main
mkdir -p lib test vendor/slug
printf '{"name":"slug","version":"1.0.0","main":"index.js"}\n' > vendor/slug/package.json
printf 'module.exports = (text) => text.toLowerCase().replace(/ /g, "-");\n' > vendor/slug/index.js
printf '{\n  "name": "site",\n  "version": "1.0.0",\n  "private": true,\n  "scripts": {"test": "node --test test/", "build": "node build.js", "lint": "node --check lib/index.js"},\n  "dependencies": {"slug": "file:vendor/slug"}\n}\n' > package.json
printf 'const slug = require("slug");\n\nexports.path = (title) => "/" + slug(title);\n' > lib/index.js
printf 'const assert = require("node:assert");\nconst test = require("node:test");\nconst { path } = require("../lib");\n\ntest("path", () => assert.equal(path("A B"), "/a-b"));\n' > test/index.test.js
printf 'const fs = require("node:fs");\n\nfs.mkdirSync("dist", { recursive: true });\nfs.writeFileSync("dist/index.js", "built\\n");\n' > build.js
printf 'node_modules/\ndist/\n' > .gitignore
npm install --silent --offline --no-audit --no-fund
git add -A
git commit -qm 'Begin'
# day
git status
node --version
npm --version
npm test
npm run build
npm run lint
npm ls
cat package.json
cat package.json | head -5
node -e 'console.log(require("./lib").path("X Y"))'
node -p 'process.version'
ls node_modules
git switch -c title
sed -i 's/exports.path/exports.pathOf/' lib/index.js
npm test
sed -i 's/{ path }/{ pathOf: path }/' test/index.test.js
npm test 2>&1 | tail -8
npm ci --offline --no-audit --no-fund
npm install --offline --no-audit --no-fund
git diff --name-only
git add -A && git commit -m 'Rename path'
git log --stat -1
npm pkg get version
npm version patch --no-git-tag-version
git commit -am 'Release'
git switch main && git merge title
git branch -d title
git diff HEAD~1 -- package.json
find lib test -name '*.js' | xargs wc -l
grep -rn "slug" lib --include=*.js
rm -rf dist && npm run build && ls dist
git clean -n
npm config get prefix
