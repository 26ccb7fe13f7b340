"""The codes of the Itanium C++ ABI for types, operators and the standard library's own names (chapter 5.1)."""

from __future__ import annotations

BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double",
    "g": "__float128", "z": "...",
}
EXTENDED = {
    "DF16_": "_Float16", "DF16b": "std::bfloat16_t", "DF32_": "_Float32", "DF64_": "_Float64", "Dn": "decltype(nullptr)",
    "Da": "auto", "Dc": "decltype(auto)", "Du": "char8_t", "Ds": "char16_t", "Di": "char32_t", "Dh": "half", "Df": "decimal32",
    "Dd": "decimal64", "De": "decimal128",
}
STANDARD = {
    "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream", "o": "std::ostream",
    "d": "std::iostream",
}
SPECIAL = {"TS": "typeinfo name for ", "TI": "typeinfo for ", "TV": "vtable for ", "GV": "guard variable for "}
OPERATORS = {
    "nw": "new", "na": "new[]", "dl": "delete", "da": "delete[]", "ps": "+", "ng": "-", "ad": "&", "de": "*", "co": "~", "pl": "+",
    "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=",
    "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==",
    "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++",
    "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()", "ix": "[]", "qu": "?", "dt": ".",
}
