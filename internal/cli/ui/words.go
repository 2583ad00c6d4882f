package ui

import (
	"fmt"
	"unicode/utf8"
)

// CheckWords refuses a command line with words that are not UTF-8, which no request can
// carry. The error names the first of them.
func (p *Process) CheckWords() error {
	for i, word := range p.Args {
		if !utf8.ValidString(word) {
			return &UsageError{fmt.Sprintf("argument %d, %+q, is not UTF-8", i+1, word), "write it in UTF-8: the terminal or the script may use another encoding"}
		}
	}
	return nil
}
