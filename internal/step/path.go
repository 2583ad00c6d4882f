package step

import (
	"fmt"
	"strconv"
	"strings"
)

// PerTask reports whether a file name differs between tasks or nodes, so that a node opens it.
func PerTask(pattern string) bool {
	found := false
	_, _ = expand(pattern, func(letter byte) (string, bool) {
		found = found || strings.IndexByte("tnN", letter) >= 0
		return "", true
	})
	return found
}

// ExpandPath replaces letters after % in a file name; a number between them pads a number with
// zeros. Letters without a value remain. A name with a backslash is used as it is, without
// backslashes, as in batch scripts.
func ExpandPath(pattern string, values map[byte]string) (string, error) {
	return expand(pattern, func(letter byte) (string, bool) {
		value, ok := values[letter]
		return value, ok
	})
}

// pathLetters are the letters that file names may have.
const pathLetters = "aAjJnNstux"

// maxPad bounds the padding of numbers.
const maxPad = 10

func expand(pattern string, value func(byte) (string, bool)) (string, error) {
	if strings.Contains(pattern, `\`) {
		return strings.ReplaceAll(pattern, `\`, ""), nil
	}
	var b strings.Builder
	for rest := pattern; rest != ""; {
		plain, after, found := strings.Cut(rest, "%")
		b.WriteString(plain)
		if !found {
			break
		}
		digits := 0
		for digits < len(after) && after[digits] >= '0' && after[digits] <= '9' {
			digits++
		}
		if digits == len(after) || after[digits] != '%' && strings.IndexByte(pathLetters, after[digits]) < 0 {
			return "", fmt.Errorf("file name %q: %% needs one of the letters %s, or %%%%", pattern, strings.Join(strings.Split(pathLetters, ""), " "))
		}
		letter := after[digits]
		rest = after[digits+1:]
		if letter == '%' {
			b.WriteByte('%')
			continue
		}
		text, ok := value(letter)
		if !ok {
			b.WriteString("%" + after[:digits+1])
			continue
		}
		width, _ := strconv.Atoi("0" + after[:digits])
		if _, err := strconv.ParseUint(text, 10, 64); err == nil && len(text) < min(width, maxPad) {
			b.WriteString(strings.Repeat("0", min(width, maxPad)-len(text)))
		}
		b.WriteString(text)
	}
	return b.String(), nil
}
