package server_test

import (
	"flag"
	"os"
	"testing"
)

// testsAtOnce is how many tests run at once unless -parallel says otherwise. Most of their time they wait for
// elections and timeouts.
const testsAtOnce = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(testsAtOnce)
	}
	os.Exit(m.Run())
}
