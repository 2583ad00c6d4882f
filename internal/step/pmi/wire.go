package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// lengthDigits is the width of the length that precedes a PMI-2 message.
const lengthDigits = 6

// invalidError says why a message is not PMI.
type invalidError string

func (e invalidError) Error() string { return string(e) }

// message is one request of a rank.
type message struct {
	command string
	pairs   map[string]string
}

// next reads a message: a line before init and in PMI-1, a counted message in PMI-2. A program that
// starts after another one of the rank has finalized begins with a line again.
func (c *client) next() (message, error) {
	if c.version == 2 {
		if start, err := c.in.Peek(len("cmd=")); err != nil {
			return message{}, err
		} else if string(start) != "cmd=" {
			return readCounted(c.in)
		}
	}
	return readLine(c.in)
}

// readLine reads a line "cmd=X key=value ..."; a spawn of PMI-1 has several lines.
func readLine(in *bufio.Reader) (message, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return message{}, invalidError(fmt.Sprintf("a line of more than %d bytes", maxMessage))
	}
	if err != nil {
		return message{}, err
	}
	text := strings.TrimSuffix(string(line), "\n")
	if name, ok := strings.CutPrefix(text, "mcmd="); ok {
		return readSpawn(in, name)
	}
	return parseLine(text)
}

// restOfLine lists the keys whose values run to the end of the line.
var restOfLine = map[string]bool{"value": true, "message": true, "msg": true}

// parseLine splits "cmd=X key=value ...".
func parseLine(line string) (message, error) {
	m := message{pairs: map[string]string{}}
	for rest := strings.TrimLeft(line, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		key, value, ok := strings.Cut(rest, "=")
		if !ok || strings.Contains(key, " ") {
			return message{}, invalidError(fmt.Sprintf("%.40q is not key=value", rest))
		}
		rest = ""
		if !restOfLine[key] {
			value, rest, _ = strings.Cut(value, " ")
		}
		m.pairs[key] = value
	}
	return m.named()
}

// readSpawn reads the lines of a spawn up to "endcmd"; the last of several counts as the request.
func readSpawn(in *bufio.Reader, name string) (message, error) {
	m := message{command: "mcmd_" + name, pairs: map[string]string{}}
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return message{}, invalidError(fmt.Sprintf("a line of more than %d bytes", maxMessage))
		}
		if err != nil {
			return message{}, err
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "=")
		switch key {
		case "endcmd":
			return m, nil
		case "totspawns", "spawnssofar":
			m.pairs[key] = value
		}
	}
}

// readCounted reads six characters of length and a message of that many bytes.
func readCounted(in *bufio.Reader) (message, error) {
	var digits [lengthDigits]byte
	if _, err := io.ReadFull(in, digits[:]); err != nil {
		return message{}, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(digits[:])), 10, 32)
	if err != nil {
		return message{}, invalidError(fmt.Sprintf("%q is not a length", digits))
	}
	if n > maxMessage {
		return message{}, invalidError(fmt.Sprintf("a message of %d bytes; the limit is %d", n, maxMessage))
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(in, body); err != nil {
		return message{}, err
	}
	return parseCounted(string(body))
}

// parseCounted splits "cmd=x;key=value;", where a value has each semicolon doubled.
func parseCounted(body string) (message, error) {
	m := message{pairs: map[string]string{}}
	for body != "" {
		key, rest, ok := strings.Cut(body, "=")
		if !ok || strings.Contains(key, ";") {
			return message{}, invalidError(fmt.Sprintf("%.40q is not key=value", body))
		}
		var value strings.Builder
		for {
			part, after, more := strings.Cut(rest, ";")
			value.WriteString(part)
			if rest = after; !more || !strings.HasPrefix(rest, ";") {
				break
			}
			value.WriteByte(';')
			rest = rest[1:]
		}
		m.pairs[key] = value.String()
		body = rest
	}
	return m.named()
}

// named sets the command from the pair cmd.
func (m message) named() (message, error) {
	m.command = m.pairs["cmd"]
	if m.command == "" {
		return message{}, invalidError("a message without cmd")
	}
	return m, nil
}

// line sends "cmd=X key=value ...".
func (c *client) line(command string, pairs ...string) error {
	out := []byte("cmd=" + command)
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, " "+pairs[i]+"="+pairs[i+1]...)
	}
	_, err := c.out.Write(append(out, '\n'))
	return err
}

// counted sends "cmd=x;key=value;" after its length, with the thread that asked if m names one.
func (c *client) counted(m message, command string, pairs ...string) error {
	if thread, ok := m.pairs["thrid"]; ok {
		pairs = append([]string{"thrid", thread}, pairs...)
	}
	body := "cmd=" + command + ";"
	for i := 0; i < len(pairs); i += 2 {
		body += pairs[i] + "=" + strings.ReplaceAll(pairs[i+1], ";", ";;") + ";"
	}
	_, err := fmt.Fprintf(c.out, "%*d%s", lengthDigits, len(body), body)
	return err
}

// fail answers a request with an error.
func (c *client) fail(m message, command, text string) error {
	if c.version == 1 {
		return c.line(command, "rc", "-1", "msg", strings.NewReplacer(" ", "_", "\n", "_").Replace(text))
	}
	return c.counted(m, command, "rc", "-1", "errmsg", text)
}
