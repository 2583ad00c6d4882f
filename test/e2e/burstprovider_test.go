package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// provider is a provider program in front of greylag-burst-local. It waits while there is a file hold-CALL, and has the
// fault that a file fault-CALL or fault-launch-LAUNCH names, once.
const provider = `#!/bin/sh
dir=$2; call=$3
input=$(cat)
cloud() { printf '%s' "$input" | "$BIN/greylag-burst-local" --dir "$dir" "$call"; }
while [ -e "$dir/hold-$call" ]; do sleep 0.1; done
launch=$(printf '%s' "$input" | sed -n 's/.*"launch":\([0-9][0-9]*\).*/\1/p')
fault=
for name in fault-$call fault-$call-$launch; do
	[ -e "$dir/$name" ] && fault=$(cat "$dir/$name") && rm "$dir/$name"
done
case $fault in
garbage) echo '<html>503 Service Unavailable</html>' ;;
hangs) sleep 1000 & echo $! $$ >"$dir/processes"; wait ;;
child) sleep 1000 & echo $! >"$dir/child"; cloud ;;
empty) echo '{"instances": []}' ;;
other) cloud | sed 's/"launch":[0-9]*/"launch":99/g' ;;
lost) cloud >"$dir/answer"; exit 75 ;;
free) cloud | sed 's/"price":"[^"]*"/"price":"0"/g' ;;
priceless) cloud | sed 's/"price":"[^"]*"/"price":"1000000000000"/g' ;;
past) cloud | sed 's/"launched_at":"[^"]*"/"launched_at":"2001-01-01T00:00:00Z"/g; s/"priced_at":"[^"]*"/"priced_at":"2001-01-01T00:00:00Z"/g' ;;
*) cloud ;;
esac
`

// newScripted starts a cluster whose provider does what the files of x.dir say, and has first faults from the
// start.
func newScripted(t *testing.T, options cluster.Options, settings map[string]any, faults map[string]string) *leased {
	t.Helper()
	dir := t.TempDir()
	x := &leased{dir: dir}
	program := filepath.Join(dir, "provider")
	text := strings.ReplaceAll(provider, "$BIN", os.Getenv("GREYLAG_BIN"))
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(program, []byte(text), 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	x.set(t, settings)
	for name, word := range faults {
		x.put(t, name, word)
	}
	options.Burst, options.BurstProgram = dir, program
	x.start(t, options)
	return x
}

// put writes a file that the provider reads.
func (x *leased) put(t testing.TB, name, word string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, name), []byte(word), 0o644); err != nil {
		t.Fatal(err)
	}
}

// drop removes a file that the provider reads.
func (x *leased) drop(name string) {
	x.t.Helper()
	x.must(os.Remove(filepath.Join(x.dir, name)))
}
