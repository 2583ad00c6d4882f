// Command errorlint checks how errors are compared, asserted and wrapped. It runs as `go vet
// -vettool`, which keeps the results of unchanged packages.
package main

import (
	"github.com/polyfloyd/go-errorlint/errorlint"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	analyzer := errorlint.NewAnalyzer()
	if err := analyzer.Flags.Set("errorf", "true"); err != nil {
		panic(err)
	}
	unitchecker.Main(analyzer)
}
