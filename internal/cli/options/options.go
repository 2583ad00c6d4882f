// Package options decides, from the error that pflag returned for a command line, how a
// user is told what is wrong with an option. It never reads a command line itself.
package options

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Problem is an error of pflag in our words, without Go's names of types and functions.
func Problem(err error) string {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("unknown option %q", named(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()))
	case errors.As(err, &missing):
		return fmt.Sprintf("option %s needs a value", named(missing.GetSpecifiedName(), missing.GetSpecifiedShortnames()))
	case errors.As(err, &invalid):
		if want := wanted(invalid.GetFlag().Value.Type()); want != "" {
			return fmt.Sprintf("--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
		return fmt.Sprintf("--%s: %q: %v", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	case errors.As(err, &syntax):
		return fmt.Sprintf("%q is no option", syntax.GetSpecifiedFlag())
	}
	return err.Error()
}

// named is an option as it was written: the first of letters in one word, or a name.
func named(name, letters string) string {
	if letters != "" {
		first := []rune(name + letters)
		return "-" + string(first[0])
	}
	return "--" + strings.TrimLeft(name, "-")
}

// wanted says what a value of one of pflag's types is; "" for types of our own, whose
// errors speak for themselves.
func wanted(kind string) string {
	switch kind {
	case "uint", "uint16", "uint32", "uint64":
		return "a whole number from 0 on, or it is too large"
	case "int", "int32", "int64":
		return "a whole number, or it is too large"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return `a time such as 90s, 5m or 1h30m`
	}
	return ""
}
