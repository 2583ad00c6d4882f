// Package getopt splits words into options and operands as GNU programs do.
//
// It decides, from a table and the words alone, which option each word is and
// which value it has, and says what is wrong with a word in terms that a person
// can act on. It never decides what a value means, and never reads a terminal, a
// file or the environment.
//
// The flag package of the standard library is not used because it knows neither
// -p4, -hN nor options whose value may be absent, which users of squeue type.
package getopt

import (
	"fmt"
	"strings"
)

// Option is one option of a program.
type Option struct {
	Long    string   // without dashes; never empty
	Short   byte     // 0: no short name
	Aliases []string // other long names, which mean the same
	Value   string   // what to call its value in help; "" when it takes none
	// Absent is the value of an option that may be given without one, such as
	// --nice; a value then needs the form --nice=5. "" when a value is needed.
	Absent string
	Group  string // heading in help
	Help   string // half a line; "" keeps it out of help
}

// Found is one option among the words.
type Found struct {
	Option *Option
	As     string // as it was spelled, with dashes
	Value  string
}

// Order says where options may stand.
type Order int

// The orders.
const (
	// Anywhere: options and operands mix; "--" ends the options.
	Anywhere Order = iota
	// First: the first operand ends the options, as of a program that runs
	// another one.
	First
)

// Error is what is wrong with a word.
type Error struct {
	Problem string
	Advice  string // what to do; may be empty
}

// Error is the problem.
func (e *Error) Error() string { return e.Problem }

// Hint is the advice.
func (e *Error) Hint() string { return e.Advice }

// Parse finds the options of table among words. A long name may be cut short as long as
// it stands for one option. The options point into table.
// The error is an *Error. O(words × table).
func Parse(table []Option, words []string, order Order) (found []Found, operands []string, err error) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			return found, append(operands, words[i+1:]...), nil
		case len(word) < 2 || word[0] != '-': // "-" is an operand
			if order == First {
				return found, append(operands, words[i:]...), nil
			}
			operands = append(operands, word)
			continue
		}
		var more []Found
		var used int
		if strings.HasPrefix(word, "--") {
			more, used, err = long(table, word, words[i+1:])
		} else {
			more, used, err = short(table, word, words[i+1:])
		}
		if err != nil {
			return nil, nil, err
		}
		found = append(found, more...)
		i += used
	}
	return found, operands, nil
}

func long(table []Option, word string, rest []string) ([]Found, int, error) {
	name, value, given := strings.Cut(word[2:], "=")
	o, matches := abbreviated(table, name)
	as := "--" + name
	switch {
	case len(matches) > 1:
		return nil, 0, &Error{fmt.Sprintf("option %s is ambiguous: %s", as, strings.Join(matches, ", ")), "write the full name"}
	case o == nil:
		return nil, 0, unknown(table, as, name)
	case given && o.Value == "":
		return nil, 0, &Error{fmt.Sprintf("option %s takes no value, got %q", as, value), "write " + as + " alone"}
	case given || o.Value == "":
		return []Found{{o, as, value}}, 0, nil
	case o.Absent != "":
		return []Found{{o, as, o.Absent}}, 0, nil
	case len(rest) == 0:
		return nil, 0, noValue(o, as)
	}
	return []Found{{o, as, rest[0]}}, 1, nil
}

// short reads a cluster of letters: all but the last are options without a value.
func short(table []Option, word string, rest []string) ([]Found, int, error) {
	var found []Found
	for i := 1; i < len(word); i++ {
		o, as := letter(table, word[i]), "-"+word[i:i+1]
		tail := word[i+1:]
		switch {
		case o == nil:
			return nil, 0, unknown(table, "-"+string([]rune(word[i:])[:1]), strings.TrimLeft(word, "-"))
		case o.Value == "":
			found = append(found, Found{o, as, ""})
			continue
		case tail != "":
			return append(found, Found{o, as, strings.TrimPrefix(tail, "=")}), 0, nil
		case o.Absent != "":
			return append(found, Found{o, as, o.Absent}), 0, nil
		case len(rest) == 0:
			return nil, 0, noValue(o, as)
		}
		return append(found, Found{o, as, rest[0]}), 1, nil
	}
	return found, 0, nil
}

func noValue(o *Option, as string) error {
	return &Error{fmt.Sprintf("option %s needs a value", as), fmt.Sprintf("write %s %s", as, o.Value)}
}

// abbreviated returns the option that a long name or a prefix of one stands for, as
// getopt_long(3) does: an exact name wins. Matches are the names that share the prefix when
// they belong to several options. O(table).
func abbreviated(table []Option, name string) (o *Option, matches []string) {
	if o = Lookup(table, name); o != nil || name == "" {
		return o, nil
	}
	for i := range table {
		for _, long := range append([]string{table[i].Long}, table[i].Aliases...) {
			if strings.HasPrefix(long, name) && o != &table[i] {
				o, matches = &table[i], append(matches, "--"+long)
			}
		}
	}
	if len(matches) > 1 {
		o = nil
	}
	return o, matches
}

// Lookup finds an option by its long name or an alias; nil without a match.
func Lookup(table []Option, name string) *Option {
	for i := range table {
		if table[i].Long == name {
			return &table[i]
		}
		for _, alias := range table[i].Aliases {
			if alias == name {
				return &table[i]
			}
		}
	}
	return nil
}

func letter(table []Option, c byte) *Option {
	if c == 0 { // not "no letter"
		return nil
	}
	for i := range table {
		if table[i].Short == c {
			return &table[i]
		}
	}
	return nil
}

func unknown(table []Option, as, name string) error {
	advice := "see --help for all options"
	name, _, _ = strings.Cut(name, "=") // of -mem=4G
	var names []string
	for i := range table {
		names = append(append(names, table[i].Long), table[i].Aliases...)
	}
	if near := Closest(name, names); near != "" {
		advice = "did you mean --" + near + "?"
	}
	return &Error{fmt.Sprintf("unknown option %q", as), advice}
}
