// Package options decides, from the error that cobra or pflag returned for a command
// line, the message and the advice for the user. It never reads a command line itself.
package options

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/greylag/greylag/internal/jobscript/getopt"
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
		return fmt.Sprintf("unexpected argument %q", syntax.GetSpecifiedFlag())
	}
	return err.Error()
}

// Advice is what to do about an error of pflag: the option of the command that was most
// likely meant, or where they are listed.
func Advice(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := getopt.Closest(strings.TrimLeft(unknown.GetSpecifiedName(), "-"), names); near != "" {
			return "did you mean --" + near + "?"
		}
	}
	return "see " + c.CommandPath() + " --help"
}

// Reword words cobra's messages about missing arguments and options in our style; "" for
// other messages.
func Reword(c *cobra.Command, text string) string {
	var want, most, got int
	scan := func(format string, into ...any) bool {
		n, _ := fmt.Sscanf(text, format, into...)
		return n == len(into)
	}
	usage := strings.TrimSuffix(c.UseLine(), " [flags]")
	switch {
	case strings.HasPrefix(text, "unknown command ") && !c.HasSubCommands():
		return fmt.Sprintf("%s takes no arguments, got %s", c.CommandPath(), strings.Fields(text)[2])
	case scan("accepts between %d and %d arg(s), received %d", &want, &most, &got),
		scan("accepts at most %d arg(s), received %d", &most, &got):
		return fmt.Sprintf("at most %d arguments, got %d: %s", most, got, usage)
	case scan("accepts %d arg(s), received %d", &want, &got):
		if got == 0 {
			return "missing argument: " + usage
		}
		return fmt.Sprintf("%d arguments needed, got %d: %s", want, got, usage)
	case scan("requires at least %d arg(s), only received %d", &want, &got):
		return "missing argument: " + usage
	case strings.HasPrefix(text, "required flag(s) "):
		words := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "required flag(s) "), " not set"), ", ")
		for i, word := range words {
			words[i] = "--" + strings.Trim(word, `"`)
		}
		return "missing: " + strings.Join(words, ", ")
	case strings.HasPrefix(text, "if any flags in the group ["):
		group, rest, _ := strings.Cut(strings.TrimPrefix(text, "if any flags in the group ["), "]")
		if _, missing, together := strings.Cut(rest, "missing ["); together {
			missing = strings.Join(strings.Fields(strings.TrimSuffix(missing, "]")), ", --")
			return fmt.Sprintf("--%s is missing: --%s go together", missing, strings.Join(strings.Fields(group), " and --"))
		}
		return "only one of these can be given: --" + strings.Join(strings.Fields(group), ", --")
	}
	return ""
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
