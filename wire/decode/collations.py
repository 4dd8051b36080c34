"""Collation ids, as TABLE_MAP events give them, and the charsets they belong to.

Taken from INFORMATION_SCHEMA.COLLATIONS of MySQL 9.7.4 and COLLATION_CHARACTER_SET_APPLICABILITY
of MariaDB 10.11.19: the ids that both have mean the same charset. MariaDB's ids from 1025 on are
NOPAD forms, those from 2048 on UCA 14.0.0.
"""

from __future__ import annotations

import codecs
from typing import Final

from pymysql.charset import charset_by_id

from ratchet.core.errors import DecodeError

_IDS: Final = {
    "armscii8": "32 64 1056 1088",
    "ascii": "11 65 1035 1089",
    "big5": "1 84 1025 1108",
    "binary": "63",
    "cp1250": "26 34 44 66 99 1050 1090",
    "cp1251": "14 23 50-52 1074-1075",
    "cp1256": "57 67 1081 1091",
    "cp1257": "29 58-59 1082-1083",
    "cp850": "4 80 1028 1104",
    "cp852": "40 81 1064 1105",
    "cp866": "36 68 1060 1092",
    "cp932": "95-96 1119-1120",
    "dec8": "3 69 1027 1093",
    "eucjpms": "97-98 1121-1122",
    "euckr": "19 85 1043 1109",
    "gb18030": "248-250",
    "gb2312": "24 86 1048 1110",
    "gbk": "28 87 1052 1111",
    "geostd8": "92-93 1116-1117",
    "greek": "25 70 1049 1094",
    "hebrew": "16 71 1040 1095",
    "hp8": "6 72 1030 1096",
    "keybcs2": "37 73 1061 1097",
    "koi8r": "7 74 1031 1098",
    "koi8u": "22 75 1046 1099",
    "latin1": "5 8 15 31 47-49 94 1032 1071",
    "latin2": "2 9 21 27 77 1033 1101",
    "latin5": "30 78 1054 1102",
    "latin7": "20 41-42 79 1065 1103",
    "macce": "38 43 1062 1067",
    "macroman": "39 53 1063 1077",
    "sjis": "13 88 1037 1112",
    "swe7": "10 82 1034 1106",
    "tis620": "18 89 1042 1113",
    "ucs2": "35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2727 2744-2759",
    "ujis": "12 91 1036 1115",
    "utf16": "54-55 101-124 672-674 1078-1079 1125 1147 2816-2983 3000-3015",
    "utf16le": "56 62 1080 1086",
    "utf32": "60-61 160-183 736-738 1084-1085 1184 1206 3072-3239 3256-3271",
    "utf8mb3": "33 76 83 192-215 223 576-578 1057 1107 1216 1238 2048-2215 2232-2247",
    "utf8mb4": "45-46 224-247 255-271 273-275 277-294 296-298 300 303-323 "
    "608-610 1069-1070 1248 1270 2304-2471 2488-2503",
}


def _expanded() -> dict[int, str]:
    charsets = {}
    for charset, spans in _IDS.items():
        for span in spans.split():
            first, _, last = span.partition("-")
            charsets.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return charsets


_CHARSETS: Final = _expanded()


def charset_of(collation: int) -> str:
    """The charset's name as information_schema has it; DecodeError for an unknown id."""
    found = _CHARSETS.get(collation)
    if found is None:
        raise DecodeError(
            f"the server uses collation id {collation}, which is unknown here",
            operation="read a table's metadata",
            hint="change the column to a built-in collation, or exclude the table in the config",
        )
    return found


def python_codec(collation: int) -> str:
    """The Python codec of a client's charset; empty where Python has none.

    Clients without a charset of their own ("binary") send what the server keeps names in, and a
    collation newer than PyMySQL's list is one of utf8mb4.
    """
    try:
        name = str(charset_by_id(collation).encoding)
    except (KeyError, IndexError):
        return "utf-8"
    if name == "binary":
        return "utf-8"
    try:
        return codecs.lookup(name).name
    except LookupError:
        return ""
