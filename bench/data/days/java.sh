# Java without a build tool.
# needs java javac
# make
git init -q -b main
mkdir -p src/main test
printf 'package main;\n\npublic class Main {\n    public static void main(String[] arguments) {\n        System.out.println("hello");\n    }\n}\n' > src/main/Main.java
printf 'out/\n' > .gitignore
git add -A
git commit -qm 'Begin'
# day
git status
java --version
javac --version
javac -d out src/main/Main.java
java -cp out main.Main
ls out
sed -i 's/hello/good day/' src/main/Main.java
git diff
javac -d out src/main/Main.java && java -cp out main.Main
jar --create --file out/main.jar -C out main
java -jar out/main.jar
git commit -am 'Good day'
git log --oneline
find . -name '*.java' -not -path './.git/*'
javap -cp out main.Main
git switch -c more
printf 'package main;\n\nrecord More(int value) {}\n' > src/main/More.java
javac -d out src/main/*.java
git add -A && git commit -m 'More'
git switch main
git merge more
git branch -d more
rm -rf out
git status --ignored
git show --stat
