# A Go module of two packages and a command, with a vendored module and its tests.
# needs go
# make
git init -q -b main
mkdir -p cmd/greet internal/text vendor/example.org/shout
printf 'module example.org/greet\n\ngo 1.19\n\nrequire example.org/shout v1.0.0\n' > go.mod
printf '# example.org/shout v1.0.0\n## explicit; go 1.19\nexample.org/shout\n' > vendor/modules.txt
printf '// Package shout raises its voice.\npackage shout\n\nimport "strings"\n\n// Up returns a text in capitals.\nfunc Up(text string) string { return strings.ToUpper(text) }\n' > vendor/example.org/shout/shout.go
printf '// Package text makes greetings.\npackage text\n\nimport "example.org/shout"\n\n//go:generate cp text.go text.txt\n\n// Greeting returns a greeting.\nfunc Greeting(name string) string {\n\treturn shout.Up("hello " + name)\n}\n' > internal/text/text.go
printf 'package text\n\nimport "testing"\n\nfunc TestGreeting(t *testing.T) {\n\tif got := Greeting("Ada"); got != "HELLO ADA" {\n\t\tt.Errorf("got %%q", got)\n\t}\n}\n\nfunc BenchmarkGreeting(b *testing.B) {\n\tfor i := 0; i < b.N; i++ {\n\t\tGreeting("Ada")\n\t}\n}\n' > internal/text/text_test.go
printf '// Greet prints a greeting.\npackage main\n\nimport (\n\t"fmt"\n\n\t"example.org/greet/internal/text"\n)\n\nfunc main() {\n\tfmt.Println(text.Greeting("Ada"))\n}\n' > cmd/greet/main.go
printf 'bin/\n*.out\n*.txt\n!vendor/modules.txt\n' > .gitignore
git add -A
git commit -qm 'Begin'
# day
git status
go version
go env GOMOD GOFLAGS GOTOOLCHAIN
go list ./...
go list -m all
go build ./...
go test ./...
go vet ./...
go doc ./internal/text
go doc strings.ToUpper
go run ./cmd/greet
go build -o bin/greet ./cmd/greet && ./bin/greet
git switch -c parting
printf '\n// Parting returns a farewell.\nfunc Parting(name string) string {\nreturn  "Bye "+name\n}\n' >> internal/text/text.go
gofmt -l .
go fmt ./...
printf '\nfunc TestParting(t *testing.T) {\n\tif got := Parting("Ada"); got != "BYE ADA" {\n\t\tt.Errorf("got %%q", got)\n\t}\n}\n' >> internal/text/text_test.go
go test ./internal/text 2>&1 | grep -v '^ok' | head -5
sed -i 's/return "Bye " + name/return shout.Up("bye " + name)/' internal/text/text.go
go test -run Parting -count=1 -v ./...
git diff --stat
go test -coverprofile=cover.out ./... && go tool cover -func=cover.out | tail -1
go test -bench=. -benchtime=10x -run '^$' ./internal/text > /dev/null
GOFLAGS=-mod=vendor go build ./...
go mod vendor
go mod verify
go mod tidy
go generate ./internal/text
CGO_ENABLED=0 GOOS=linux go build -o bin/greet ./cmd/greet
git add -A && git commit -m 'Add Parting'
git switch main && git merge --ff-only parting
git branch -d parting
grep -rn "func " --include=*.go internal cmd
go list -f '{{.Name}} {{.ImportPath}}' ./...
go clean -testcache
rm -rf bin cover.out
git log --oneline -3
