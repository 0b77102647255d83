"""Programs that look for faults for hours: campaigns of random cases, a fuzzer, and deliberate faults for the tests."""
