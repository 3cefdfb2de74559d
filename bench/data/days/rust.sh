# A Rust crate without dependencies.
# needs cargo
# make
git init -q -b main
mkdir -p src
printf '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml
printf 'fn sum(values: &[i32]) -> i32 {\n    values.iter().sum()\n}\n\nfn main() {\n    println!("{}", sum(&[1, 2]));\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn sums() {\n        assert_eq!(super::sum(&[1, 2]), 3);\n    }\n}\n' > src/main.rs
printf 'target/\n' > .gitignore
cargo generate-lockfile --offline -q
git add -A
git commit -qm 'Begin'
# day
git status
cargo --version
rustc --version
cargo check --offline
cargo build --offline
cargo test --offline
cargo run --offline
cargo fmt --check
cargo metadata --offline --format-version 1 --no-deps
cargo tree --offline
cat Cargo.toml
ls src
git switch -c double
sed -i 's/\[1, 2\])/[1, 2, 3])/' src/main.rs
cargo build --offline 2>&1 | tail -3
git diff
git commit -am 'Three'
cargo test --offline
sed -i 's/, 3);/, 6);/' src/main.rs
cargo test --offline 2>&1 | grep 'test result'
git commit -am 'Mend the test'
git switch main
git merge double
git branch -d double
cargo clean --offline
cargo build --offline --release
./target/release/sums
git log --oneline
