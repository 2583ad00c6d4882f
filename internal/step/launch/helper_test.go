package launch_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func countLines(r io.Reader, counts map[string]int) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		counts[lines.Text()]++
	}
	return lines.Err()
}

// perTask has a line for each task of messages that name several tasks: how many share a message
// depends on timing.
func perTask(notes string) string {
	var b strings.Builder
	for line := range strings.Lines(notes) {
		node, rest, ok := strings.Cut(line, ": tasks ")
		list, text, both := strings.Cut(rest, ": ")
		if !ok || !both {
			b.WriteString(line)
			continue
		}
		for part := range strings.SplitSeq(list, ",") {
			var first, last int
			if n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			for rank := first; rank <= last; rank++ {
				fmt.Fprintf(&b, "%s: task %d: %s", node, rank, text)
			}
		}
	}
	return b.String()
}
